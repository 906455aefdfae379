"""Train with the settings of configs/ and write what came of it into benchmarks/RESULTS.md.

`python -m benchmarks.learn configs/CartPole-v1.toml --seeds 0 1 2`: each file's own --target-return
and --max-frames hold. One program at a time writes the table.
"""

import argparse
import csv
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from es.checkpoint import load

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "RESULTS.md"
EPISODES, SEED = 100, 1000  # of the score, which decides nothing

PUBLISHED = {
    "Acrobot-v1": "ARS -82.9 @ 5e5",
    "Ant-v5": "ARS 2334 @ 7.5e7",
    "BoxingDeterministic-v4": "ES 49.8 @ 2.5e8",
    "BreakoutDeterministic-v4": "ES 9.5 @ 2.5e8",
    "CartPole-v1": "ARS 500 @ 5e4",
    "FreewayDeterministic-v4": "ES 31.0 @ 2.5e8",
    "HalfCheetah-v5": "ES 2386 @ 2.9e6; ARS 4815 @ 1.2e7; es-torch 3000 to 4000",
    "Hopper-v5": "ES 3403 @ 3.2e7; ARS 3344 @ 7e6",
    "Humanoid-v5": "ES 6000, 18 cores in 11 hours; ClipUp 10184 @ 1.5e8; ARS 11600",
    "InvertedDoublePendulum-v5": "ES 9104 @ 5.4e6",
    "InvertedPendulum-v5": "ES 1000 @ 4.6e5",
    "LunarLanderContinuous-v3": "ARS 168 @ 2e6",
    "MountainCar-v0": "ARS -122 @ 5e5",
    "MountainCarContinuous-v0": "ARS 96.7 @ 5e5",
    "Pendulum-v1": "ARS -212 @ 2e6",
    "PongDeterministic-v4": "ES 21.0 @ 2.5e8",
    "Swimmer-v5": "ES 128 @ 1.4e6; ARS 355 @ 2e6",
    "Walker2d-v5": "ES 3830 @ 3.8e7; ARS 2994 @ 7.5e7; ClipUp 5232 @ 3.8e7",
}


class Outcome(NamedTuple):
    """What one run came to: whether to its target, and the mean of EPISODES other episodes."""

    solved: bool
    steps: int
    seconds: float
    score: float


def main() -> None:
    """Run every file with every seed; its row is in RESULTS.md as soon as it is done."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("configs", nargs="+", type=Path, metavar="CONFIG")
    parser.add_argument("--seeds", nargs="+", type=int, default=[*range(12)])
    parser.add_argument("--keep", type=Path, help="keep runs in this folder, and use those there")
    parser.add_argument("--workers", default="auto", help="as the trainer's")
    arguments = parser.parse_args()
    for config in arguments.configs:
        if not config.is_file():
            parser.error(f"there is no file {config}: for example, configs/CartPole-v1.toml")
    with tempfile.TemporaryDirectory() as nowhere:
        runs = arguments.keep or Path(nowhere)
        for config in arguments.configs:
            outcomes = []
            for seed in arguments.seeds:
                print(f"{config.stem} seed {seed}:", end=" ", flush=True)
                run = runs / f"{config.stem}-{seed}"
                outcomes.append(learn(config, seed, run, ["--workers", arguments.workers]))
                print(outcomes[-1], flush=True)
            row = row_of(config.stem, tomllib.loads(config.read_text()), outcomes)
            RESULTS.write_text(with_row(RESULTS.read_text("utf-8"), "learn", row), "utf-8")


def learn(config: Path, seed: int, run: Path, further: Sequence[str]) -> Outcome:
    """Return the outcome of a run, which is carried on if it is there already."""
    latest = run / "latest.safetensors"
    again = ("--restore", latest) if latest.exists() else ("--run-dir", run)
    ended = "Solved:|Target not reached:|Finished"
    program(ended, "--config", config, "--seed", seed, "--silent", *again, *further)
    with (run / "progress.csv").open(newline="") as file:
        *_, last = csv.DictReader(file)
    checkpoint = load(str(latest))
    score = program(
        r"\d+ episodes: mean (\S+),",
        "--test", "--no-render", "--restore", latest, "--trust",
        "--episodes", EPISODES, "--seed", SEED,
    )  # fmt: skip
    solved = checkpoint.solved is not None
    return Outcome(solved, int(last["frames"]), float(last["wall_seconds"]), float(score[1]))


def program(last_line: str, *arguments: object) -> re.Match[str]:
    """Return the match of the trainer's last line; raise RuntimeError if there is none."""
    command = [sys.executable, str(ROOT / "main.py"), *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.match(last_line, (result.stdout.splitlines() or [""])[-1])
    if not found:
        raise RuntimeError(f"{' '.join(command)}: {result.stderr or result.stdout}")
    return found


def row_of(name: str, settings: dict[str, Any], outcomes: list[Outcome]) -> str:
    """Return a row of the table."""
    target, frames = settings.get("target-return"), settings.get("max-frames")
    if frames:
        within = f"{frames:.2g}".replace("e+0", "e")
    else:
        within = f"{settings['max-gradient-updates']} updates"
    scores = sorted(outcome.score for outcome in outcomes)
    steps = sorted(outcome.steps for outcome in outcomes)
    reached = f"{sum(outcome.solved for outcome in outcomes)} of {len(outcomes)}"
    return cells(
        name, "-" if target is None else f"{target:g}", within,
        "-" if target is None else reached,
        f"{median(steps):,.0f}", f"{steps[0]:,} to {steps[-1]:,}",
        f"{median(outcome.seconds for outcome in outcomes):.0f}",
        f"{median(scores):.6g}", f"{scores[0]:.6g}", PUBLISHED.get(name, "-"),
    )  # fmt: skip


def cells(*texts: str) -> str:
    """Return a table's row."""
    return f"| {' | '.join(texts)} |"


def with_row(text: str, table: str, row: str) -> str:
    """Return the text with the row in its table, in place of an earlier one of that name."""
    begin, end = f"<!-- {table} -->\n", f"<!-- end of {table} -->"
    before, found, rest = text.partition(begin)
    inside, found_end, after = rest.partition(end)
    assert found, f"there is no {begin}"
    assert found_end, f"there is no {end}"
    head, rows = inside.splitlines()[:2], inside.splitlines()[2:]
    key = row.split("|")[1]
    rows = sorted([*(old for old in rows if old.split("|")[1] != key), row])
    return before + begin + "\n".join([*head, *rows, ""]) + end + after


if __name__ == "__main__":
    main()
