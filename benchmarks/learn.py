"""Trains with the settings of configs/ and writes what came of it into benchmarks/RESULTS.md.

`python benchmarks/learn.py configs/CartPole-v1.toml --seeds 0 1 2`: each file's own --target-return
and --max-frames hold. With --minutes, runs end after so long at the latest, and go into a table of
their own: tasks that take too long to be finished here. One program at a time writes the tables.
"""

import argparse
import csv
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "RESULTS.md"
EPISODES, OTHER_SEED = 100, 1_000_000  # of the second opinion

PUBLISHED = {
    "Acrobot-v1": "ARS -82.9 @ 5e5",
    "Ant-v5": "ARS 2334 @ 7.5e7",
    "CartPole-v1": "ARS 500 @ 5e4",
    "HalfCheetah-v5": "ES 2386 @ 2.9e6; ARS 4815 @ 1.2e7; es-torch 3000 to 4000",
    "Hopper-v5": "ES 3403 @ 3.2e7; ARS 3344 @ 7e6",
    "Humanoid-v5": "ES 6000, 18 cores in 11 hours",
    "InvertedDoublePendulum-v5": "ES 9104 @ 5.4e6",
    "InvertedPendulum-v5": "ES 1000 @ 4.6e5",
    "LunarLanderContinuous-v3": "ARS 168 @ 2e6",
    "MountainCar-v0": "ARS -122 @ 5e5",
    "MountainCarContinuous-v0": "ARS 96.7 @ 5e5",
    "Pendulum-v1": "ARS -212 @ 2e6",
    "PongDeterministic-v4": "ES 21.0 @ 2.5e8",
    "Swimmer-v5": "ES 128 @ 1.4e6; ARS 355 @ 2e6",
    "Walker2d-v5": "ES 3830 @ 3.8e7; ARS 2994 @ 7.5e7",
}


class Outcome(NamedTuple):
    """What one run came to.

    score: the mean return with which it ended, None where that is short of the target. again: that
    of EPISODES others. first, last: the mean unperturbed return of the first and last tenth of the
    updates.
    """

    score: float | None
    steps: int
    seconds: float
    again: float
    first: float
    last: float


def main() -> None:
    """Runs every file with every seed; its rows are in RESULTS.md as soon as it is done."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("configs", nargs="+", type=Path, metavar="CONFIG")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--minutes", type=float, help="end each run after so long")
    arguments = parser.parse_args()
    files = {config: tomllib.loads(config.read_text()) for config in arguments.configs}
    for config, settings in files.items():
        outcomes = []
        for seed in arguments.seeds:
            print(f"{config.stem} seed {seed}:", end=" ", flush=True)
            outcomes.append(learn(config, seed, arguments.minutes))
            print(outcomes[-1], flush=True)
        if arguments.minutes:
            row, table = short_row_of(config.stem, arguments.seeds, outcomes), "climb"
        else:
            row, table = row_of(config.stem, settings, outcomes), "learn"
        text = with_row(RESULTS.read_text("utf-8"), table, row)
        RESULTS.write_text(text, "utf-8")


def learn(config: Path, seed: int, minutes: float | None) -> Outcome:
    """The outcome of a run in a directory that is thrown away."""
    with tempfile.TemporaryDirectory() as directory:
        run = Path(directory) / "run"
        limits = ["--max-minutes", str(minutes)] if minutes else []
        end = program(
            r"Solved: mean (\S+),|Target not reached|Finished",
            "--config", config, "--seed", seed, "--run-dir", run, "--silent", *limits,
        )  # fmt: skip
        with (run / "progress.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        again = program(
            r"\d+ episodes: mean (\S+),",
            "--test", "--no-render", "--restore", run / "latest.safetensors",
            "--episodes", EPISODES, "--seed", OTHER_SEED + seed,
        )  # fmt: skip
        returns = [float(row["unperturbed_return"]) for row in rows]
        tenth = -(-len(returns) // 10)
        return Outcome(
            float(end[1]) if end[1] else None,
            int(rows[-1]["frames"]),
            float(rows[-1]["wall_seconds"]),
            float(again[1]),
            sum(returns[:tenth]) / tenth,
            sum(returns[-tenth:]) / tenth,
        )


def program(last_line: str, *arguments: object) -> re.Match[str]:
    """What the trainer's last line, a regular expression, matches; RuntimeError where it fails."""
    command = [sys.executable, str(ROOT / "main.py"), *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.match(last_line, (result.stdout.splitlines() or [""])[-1])
    if not found:
        raise RuntimeError(f"{' '.join(command)}: {result.stderr or result.stdout}")
    return found


def row_of(name: str, settings: dict[str, Any], outcomes: list[Outcome]) -> str:
    """A row of the table of targets."""
    target, frames = settings.get("target-return"), settings.get("max-frames")
    if frames:
        within = f"{frames:.2g}".replace("e+0", "e")
    else:
        within = f"{settings['max-gradient-updates']} updates"
    wanted, reached = "-", "-"
    if target is not None:
        wanted = f"{target:g}"
        reached = f"{sum(outcome.score is not None for outcome in outcomes)} of {len(outcomes)}"
    return cells(
        name, wanted, within, reached,
        each(outcome.steps for outcome in outcomes),
        each(f"{outcome.seconds:.2g}" for outcome in outcomes),
        each("-" if outcome.score is None else outcome.score for outcome in outcomes),
        each(outcome.again for outcome in outcomes),
        PUBLISHED.get(name, "-"),
    )  # fmt: skip


def short_row_of(name: str, seeds: list[int], outcomes: list[Outcome]) -> str:
    """A row of the table of short runs."""
    return cells(
        name, each(seeds),
        each(outcome.steps for outcome in outcomes),
        each(round(outcome.seconds) for outcome in outcomes),
        each(f"{outcome.first:.5g} → {outcome.last:.5g}" for outcome in outcomes),
        each(outcome.again for outcome in outcomes),
        PUBLISHED.get(name, "-"),
    )  # fmt: skip


def cells(*texts: str) -> str:
    """A table's row."""
    return f"| {' | '.join(texts)} |"


def each(values: Any) -> str:
    """The figures of all seeds, in their order."""
    texts = (f"{value:.6g}" if isinstance(value, float) else str(value) for value in values)
    return " / ".join(texts)


def with_row(text: str, table: str, row: str) -> str:
    """The text with the row in its table, in place of an earlier one of that name."""
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
