"""Play the policies in trained/ and compare their scores with trained/README.md.

`python -m benchmarks.scores [NAME ...]` plays 100 episodes of each, which decided nothing in
training, and fails if a mean is lower than its line says by more than two standard errors.
`python -m benchmarks.scores --ship CHECKPOINT NAME` makes trained/NAME.safetensors of a
checkpoint, plays it, and writes its line.
"""

import argparse
import json
import math
import re
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.learn import EPISODES, PUBLISHED, SEED, cells, with_row
from es.checkpoint import Checkpoint, load, save
from es.config import FIELDS
from es.rollouts.processes import cores

ROOT = Path(__file__).resolve().parent.parent
TRAINED = ROOT / "trained"
TABLE, README = "scores", TRAINED / "README.md"
LIMITS = ("target_return", "max_frames", "max_minutes")  # of the run, where it might go on
PLACES = ("run_dir", "silent", "workers")


class Score(NamedTuple):
    """The returns of a policy's episodes: how many, their mean and their standard deviation."""

    episodes: int
    mean: float
    std: float

    @property
    def error(self) -> float:
        """The standard error of the mean."""
        return self.std / math.sqrt(self.episodes)


def main() -> int:
    """Return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="all of trained/ unless given")
    parser.add_argument("--ship", metavar="CHECKPOINT", help="make trained/NAME.safetensors of it")
    parser.add_argument("--command", help="that trained it, if not `python main.py --config NAME`")
    arguments = parser.parse_args()
    if arguments.ship:
        if len(arguments.names) != 1:
            parser.error("--ship: give the one NAME that the policy gets")
        ship(arguments.ship, arguments.names[0], arguments.command)
        return 0
    lines = told()
    names = arguments.names or sorted(lines)
    if missing := {*names} - {*lines}:
        parser.error(f"trained/README.md has no {', '.join(sorted(missing))}")
    failed = 0
    with ThreadPoolExecutor(cores()) as threads:
        for name, found in zip(names, threads.map(play, names), strict=True):
            short = lines[name].mean - found.mean > 2 * max(lines[name].error, found.error)
            failed += short
            verdict = "too low: " if short else "ok: "
            scores = (f"{score.mean:.2f} ± {score.std:.2f}" for score in (found, lines[name]))
            print(f"{name}: {verdict}{', the file says '.join(scores)}", flush=True)
    print(f"{len(names) - failed} of {len(names)} policies score what trained/README.md says")
    return int(failed > 0)


def told() -> dict[str, Score]:
    """Return the scores in trained/README.md, by name."""
    row = re.compile(r"^\| \[`(\S+)`\]\(\S+\) \| (-?[\d.]+) ± ([\d.]+) \|", re.MULTILINE)
    found = row.findall(README.read_text("utf-8"))
    return {name: Score(EPISODES, float(mean), float(std)) for name, mean, std in found}


def play(name: str, episodes: int = EPISODES) -> Score:
    """Return the score of trained/NAME.safetensors; raise RuntimeError if it cannot be played."""
    # A checkpoint does not choose what is imported.
    env_name = tomllib.loads((ROOT / "configs" / f"{name}.toml").read_text("utf-8"))["env-name"]
    command = (
        sys.executable, ROOT / "main.py", "--test", "--json", "--episodes", str(episodes),
        "--seed", str(SEED), "--restore", TRAINED / f"{name}.safetensors", "--env-name", env_name,
    )  # fmt: skip
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise RuntimeError(f"{name}: {result.stderr}")
    played = json.loads(result.stdout)
    return Score(episodes, played["mean"], played["std"])


def ship(path: str, name: str, command: str | None) -> None:
    """Make trained/NAME.safetensors of a checkpoint, play it, and write its line."""
    checkpoint = load(path)
    assert checkpoint.config is not None, f"{path} holds weights alone"
    save(slim(checkpoint), TRAINED / f"{name}.safetensors")
    score, counters = play(name), checkpoint.counters
    seed, workers = checkpoint.config.seed, checkpoint.config.workers
    command = command or f"python main.py --config {name} --seed {seed}"
    seconds = counters.wall_seconds
    spent = f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
    row = cells(
        f"[`{name}`]({name}.safetensors)", f"{score.mean:.2f} ± {score.std:.2f}",
        PUBLISHED.get(name, "-"), f"{counters.frames:,}",
        spent, str(cores() if workers == "auto" else workers), f"`{command}`",
    )  # fmt: skip
    README.write_text(with_row(README.read_text("utf-8"), TABLE, row), "utf-8")
    print(row)


def slim(checkpoint: Checkpoint) -> Checkpoint:
    """Return what playing a policy needs, and training it further but for the optimiser's moments.

    The weights of the large network take half of their room: their precision is more than enough.
    """
    assert checkpoint.config is not None
    left_out: Any = {name: FIELDS[name].default for name in (*LIMITS, *PLACES)}
    config = replace(checkpoint.config, **left_out)
    parameters = checkpoint.parameters
    if "conv1.weight" in parameters:
        parameters = {name: tensor.half() for name, tensor in parameters.items()}
    return checkpoint._replace(parameters=parameters, optimizer={}, config=config, solved=None)


if __name__ == "__main__":
    sys.exit(main())
