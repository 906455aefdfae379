"""Train with the settings of configs/ and write the outcome into docs/results.md.

`python -m benchmarks.learn configs/CartPole-v1.toml --seeds 0 1 2` trains with each file's own
--target-return and --max-frames. `python -m benchmarks.learn --unknown [TASK ...]` trains with
configs/unknown.toml to the target of the task's own file, in at most six times the steps that the
file needs. Run one such program at a time: it rewrites the table.
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
RESULTS, CONFIGS = ROOT / "docs" / "results.md", ROOT / "configs"
EPISODES, SEED = 100, 1000  # of the score, which decides nothing
BUDGET = 6  # with --unknown: times the median steps of the task's own file

PUBLISHED = {
    "Acrobot-v1": "ARS -82.9 @ 5e5",
    "Ant-v5": "ARS 2334 @ 7.5e7",
    "BoxingDeterministic-v4": "ES 49.8 @ 2.5e8",
    "BreakoutDeterministic-v4": "ES 9.5 @ 2.5e8",
    "CartPole-v1": "ARS 500 @ 5e4",
    "FreewayDeterministic-v4": "ES 31.0 @ 2.5e8",
    "HalfCheetah-v5": "ES 2386 @ 2.9e6; ARS 4815 @ 1.2e7",
    "Hopper-v5": "ES 3403 @ 3.2e7; ARS 3344 @ 7e6",
    "Humanoid-v5": "ES 6000; ClipUp 10184 @ 1.5e8; ARS 11600",
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
# Tasks of --unknown that have no file: their target and budget of steps.
OTHERS = {
    "CliffWalking-v1": (-13.0, 1_000_000),
    "FrozenLake-v1": (0.7, 1_000_000),
    "Taxi-v4": (8.0, 4_000_000),
}
UNKNOWN = (
    "Acrobot-v1", "CartPole-v1", "CyclicMDP-v0", "HalfCheetah-v5", "InvertedDoublePendulum-v5",
    "InvertedPendulum-v5", "LunarLander-v3", "LunarLanderContinuous-v3", "MountainCar-v0",
    "MountainCarContinuous-v0", "Pendulum-v1", "Reacher-v5", "Swimmer-v5", *OTHERS,
)  # fmt: skip


class Outcome(NamedTuple):
    """Whether a run reached its target, and the mean of EPISODES independent episodes."""

    solved: bool
    steps: int
    seconds: float
    score: float


def main() -> None:
    """Train; a row is in docs/results.md as soon as it is complete."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("configs", nargs="*", metavar="CONFIG", help="with --unknown: tasks")
    parser.add_argument("--unknown", action="store_true", help="train with configs/unknown.toml")
    parser.add_argument("--seeds", nargs="+", type=int, help="default: 0 to 11, with --unknown 0")
    parser.add_argument("--keep", type=Path, help="keep runs in this folder, continue those there")
    parser.add_argument("--workers", default="auto", help="the trainer's flag")
    arguments = parser.parse_args()
    workers = ["--workers", arguments.workers]
    with tempfile.TemporaryDirectory() as folder:
        runs = arguments.keep or Path(folder)
        if arguments.unknown:
            for task in arguments.configs or UNKNOWN:
                for seed in arguments.seeds or [0]:
                    row = unknown_row(task, seed, runs / f"{task}-unknown-{seed}", workers)
                    write_row(RESULTS, "unknown", row)
            return
        for config in map(Path, arguments.configs):
            outcomes = []
            for seed in arguments.seeds or range(12):
                print(f"{config.stem} seed {seed}:", end=" ", flush=True)
                outcomes.append(learn(config, seed, runs / f"{config.stem}-{seed}", workers))
                print(outcomes[-1], flush=True)
            settings = tomllib.loads(config.read_text())
            write_row(RESULTS, "learn", learn_row(config.stem, settings, outcomes))


def learn(config: Path, seed: int, run: Path, flags: Sequence[str]) -> Outcome:
    """Return the outcome of a run, which is continued if it exists."""
    latest = run / "latest.safetensors"
    place = ("--restore", latest) if latest.exists() else ("--run-dir", run)
    last_line = "Solved:|Target not reached:|Finished"
    program(last_line, "--config", config, "--seed", seed, "--silent", *place, *flags)
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
    """Return the match of the trainer's last line; raise RuntimeError if it does not match."""
    command = [sys.executable, str(ROOT / "main.py"), *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    match = re.match(last_line, (result.stdout.splitlines() or [""])[-1])
    if not match:
        raise RuntimeError(f"{' '.join(command)}: {result.stderr or result.stdout}")
    return match


def learn_row(name: str, settings: dict[str, Any], outcomes: list[Outcome]) -> str:
    """Return a row of the table of tuned settings."""
    frames = settings.get("max-frames")
    within = f"{frames:.2g}" if frames else f"{settings['max-gradient-updates']} updates"
    scores = sorted(outcome.score for outcome in outcomes)
    steps = sorted(outcome.steps for outcome in outcomes)
    return cells(
        name, f"{settings['target-return']:g}", within.replace("e+0", "e"),
        f"{median(scores):.6g}", f"{scores[0]:.6g}",
        f"{sum(outcome.solved for outcome in outcomes)} of {len(outcomes)}",
        f"{median(steps):,.0f}", f"{steps[0]:,} to {steps[-1]:,}",
        f"{median(outcome.seconds for outcome in outcomes):.0f}", PUBLISHED.get(name, "-"),
    )  # fmt: skip


def unknown_row(task: str, seed: int, run: Path, flags: list[str]) -> str:
    """Train a task with configs/unknown.toml; return its row."""
    tuned = None
    if task in OTHERS:
        target, budget = OTHERS[task]
        flags = [*flags, "--env-name", task]
    else:
        file = tomllib.loads((CONFIGS / f"{task}.toml").read_text())
        row = re.search(rf"^\| {task} \|.*$", RESULTS.read_text("utf-8"), re.MULTILINE)
        assert row, f"benchmarks.learn has not trained {task}"
        tuned = int(row[0].split("|")[7].replace(",", ""))
        target, budget = file["target-return"], BUDGET * tuned
        flags = [*flags, "--env-name", file["env-name"]]
        if "env-kwargs" in file:
            flags += ["--env-kwargs", *file["env-kwargs"]]
    flags += ["--target-return", str(target), "--max-frames", str(budget)]
    outcome = learn(CONFIGS / "unknown.toml", seed, run, flags)
    print(task, outcome, flush=True)
    return cells(
        task, f"{target:g}", "yes" if outcome.solved else "no", f"{outcome.steps:,}",
        f"{outcome.steps / tuned:.1f}" if tuned and outcome.solved else "-",
        f"{outcome.seconds:.0f}", f"{outcome.score:.6g}",
    )  # fmt: skip


def cells(*texts: str) -> str:
    """Return a row of a Markdown table."""
    return f"| {' | '.join(texts)} |"


def write_row(path: Path, table: str, row: str) -> None:
    """Put a row into the table between `<!-- TABLE -->` and `<!-- end of TABLE -->`, sorted."""
    begin, end = f"<!-- {table} -->\n", f"<!-- end of {table} -->"
    before, _, rest = path.read_text("utf-8").partition(begin)
    inside, _, after = rest.partition(end)
    head, rows = inside.splitlines()[:2], inside.splitlines()[2:]
    others = [old for old in rows if old.split("|")[1] != row.split("|")[1]]
    lines = "\n".join([*head, *sorted([*others, row]), ""])
    path.write_text(f"{before}{begin}{lines}{end}{after}", "utf-8")


if __name__ == "__main__":
    main()
