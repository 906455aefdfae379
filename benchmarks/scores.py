"""Play the policies in trained/ and compare their scores with trained/README.md.

`python -m benchmarks.scores [NAME ...]` plays 100 episodes of each, which decided nothing in
training, and fails if a mean is lower than its line says by more than two standard errors.
`python -m benchmarks.scores --ship CHECKPOINT NAME` makes trained/NAME.safetensors of a
checkpoint, plays it, and writes its line.
"""

import argparse
import math
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import learn
from benchmarks.learn import EPISODES, PUBLISHED, cells, write_row
from es.checkpoint import Checkpoint, load, save
from es.config import FIELDS
from es.rollouts.processes import cores

ROOT = Path(__file__).resolve().parent.parent
TRAINED = ROOT / "trained"
README = TRAINED / "README.md"
# Settings of a run that a shipped policy does not keep.
LIMITS = ("target_return", "max_frames", "max_minutes")  # of the run, where it might go on
PLACES = ("run_dir", "silent", "workers", "restore", "override")


class Score(NamedTuple):
    """Mean and standard deviation of the returns of EPISODES episodes."""

    mean: float
    std: float

    def __str__(self) -> str:
        return f"{self.mean:.2f} ± {self.std:.2f}"


def main() -> int:
    """Return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all of trained/")
    parser.add_argument("--ship", metavar="CHECKPOINT", help="make trained/NAME.safetensors of it")
    parser.add_argument("--command", help="that trained it, if not `python main.py --config NAME`")
    arguments = parser.parse_args()
    if arguments.ship:
        if len(arguments.names) != 1:
            parser.error("--ship: give the one NAME that the policy gets")
        ship(arguments.ship, arguments.names[0], arguments.command)
        return 0
    documented = documented_scores()
    names = arguments.names or sorted(documented)
    if missing := {*names} - {*documented}:
        parser.error(f"trained/README.md has no {', '.join(sorted(missing))}")
    failed = 0
    with ThreadPoolExecutor(cores()) as threads:
        for name, score in zip(names, threads.map(play, names), strict=True):
            expected = documented[name]
            allowed = 2 * max(expected.std, score.std) / math.sqrt(EPISODES)
            low = expected.mean - score.mean > allowed
            failed += low
            print(
                f"{name}: {'too low' if low else 'ok'}: {score}, documented {expected}", flush=True
            )
    print(f"{len(names) - failed} of {len(names)} policies score what trained/README.md says")
    return int(failed > 0)


def documented_scores() -> dict[str, Score]:
    """Return the scores in trained/README.md, by name."""
    row = re.compile(r"^\| \[`(\S+)`\]\(\S+\) \| (-?[\d.]+) ± ([\d.]+) \|", re.MULTILINE)
    rows = row.findall(README.read_text("utf-8"))
    return {name: Score(float(mean), float(std)) for name, mean, std in rows}


def play(name: str) -> Score:
    """Return the score of trained/NAME.safetensors; raise RuntimeError if it cannot be played."""
    played = learn.play(TRAINED / f"{name}.safetensors")
    return Score(played["mean"], played["std"])


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
        f"[`{name}`]({name}.safetensors)", str(score),
        PUBLISHED.get(name, "-"), f"{counters.frames:,}",
        spent, str(cores() if workers == "auto" else workers), f"`{command}`",
    )  # fmt: skip
    write_row(README, "scores", row)
    print(row)


def slim(checkpoint: Checkpoint) -> Checkpoint:
    """Return a checkpoint without the optimiser's state: it plays, and can be trained further."""
    assert checkpoint.config is not None
    left_out: Any = {name: FIELDS[name].default for name in (*LIMITS, *PLACES)}
    config = replace(checkpoint.config, **left_out)
    return checkpoint._replace(optimizer={}, config=config, solved=None)


if __name__ == "__main__":
    sys.exit(main())
