"""Train with the settings of configs/ and write the outcome into docs/results.md.

`python -m benchmarks.learn CartPole-v1` trains with configs/CartPole-v1.toml and with seeds that no
setting was chosen on, 100 to 111. Each run is scored by episodes that decided nothing. Outcomes are
kept in learn.csv and are not measured again; remove a task's lines after its settings have changed.

`python -m benchmarks.learn --unknown [TASK ...]` trains with configs/unknown.toml to the task's
threshold, or to the target of its own file if that is higher, in at most six times the steps that
the file needs or two million. It counts as solved at the threshold. Run one such program at a time:
it rewrites the table.
"""

import argparse
import csv
import json
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import gymnasium

from es.checkpoint import load
from es.run import MISSED

ROOT = Path(__file__).resolve().parent.parent
RESULTS, CONFIGS = ROOT / "docs" / "results.md", ROOT / "configs"
OUTCOMES = Path(__file__).with_suffix(".csv")
SEEDS = range(100, 112)  # settings are chosen on seeds 0 to 9
EPISODES, SEED = 100, 100_000  # of the score, which decides nothing
BUDGET, LEAST = 6, 2_000_000  # with --unknown: times the steps of the task's own file, and steps

# Evolutionary methods, then the best run of another method: RL Zoo's, or else CleanRL's.
PUBLISHED = {
    "Acrobot-v1": "ARS -82.9 @ 5e5; QR-DQN -69.1 @ 1e5",
    "Ant-v5": "ARS 2334 @ 7.5e7; TD3 5813 @ 1e6",
    "BipedalWalker-v3": "TQC 330 @ 5e5",
    "BoxingDeterministic-v4": "ES 49.8 @ 2.5e8",
    "CartPole-v1": "ARS 500 @ 5e4; DQN 500 @ 5e4",
    "HalfCheetah-v5": "ES 2386 @ 2.9e6; ARS 4815 @ 1.2e7; TQC 12090 @ 1e6",
    "HalfCheetahARS-v5": "ES 2386 @ 2.9e6; ARS 4815 @ 1.2e7; TQC 12090 @ 1e6",
    "Hopper-v5": "ES 3403 @ 3.2e7; ARS 3344 @ 7e6; TQC 3754 @ 1e6",
    "Humanoid-v5": "ES 6000; ClipUp 10184 @ 1.5e8; ARS 11600; TQC 7239 @ 2e6",
    "HumanoidStandup-v5": "RPO 150972 @ 8e6",
    "InvertedDoublePendulum-v5": "ES 9104 @ 5.4e6",
    "InvertedPendulum-v5": "ES 1000 @ 4.6e5",
    "LunarLander-v3": "PPO 242 @ 1e6",
    "LunarLanderContinuous-v3": "ARS 168 @ 2e6; TQC 278 @ 5e5",
    "MiniGrid-DoorKey-5x5-v0": "PPO 0.964 @ 1e5",
    "MountainCar-v0": "ARS -122 @ 5e5; DQN -101 @ 1.2e5",
    "MountainCarContinuous-v0": "ARS 96.7 @ 5e5; SAC 94.7 @ 5e4",
    "Pendulum-v1": "ARS -213 @ 2e6; TD3 -152 @ 2e4",
    "PongDeterministic-v4": "ES 21.0 @ 2.5e8; PPO 21.0 @ 1e7",
    "Pusher-v5": "SAC -22.5 @ 1e6",
    "Reacher-v5": "RPO -3.93 @ 8e6",
    "Swimmer-v5": "ES 128 @ 1.4e6; ARS 355 @ 2e6; TRPO 366 @ 1e6",
    "Walker2d-v5": "ES 3830 @ 3.8e7; ARS 2994 @ 7.5e7; ClipUp 5232 @ 3.8e7; TRPO 4933 @ 1e6",
}
# Where Gymnasium has no reward threshold: a published score.
THRESHOLDS = {
    "BoxingDeterministic-v4": (49.8, "ES"),
    "Humanoid-v5": (6000.0, "ES, v1"),
    "HumanoidStandup-v5": (150_972.0, "CleanRL's RPO, v4"),
    "MiniGrid-DoorKey-5x5-v0": (0.9, "set before the runs"),  # published for other methods alone
    "Pendulum-v1": (-157.0, "RL Zoo's SAC"),
    "PongDeterministic-v4": (21.0, "ES"),
    "Walker2d-v5": (5232.0, "ClipUp, v2"),
}
# Tasks of --unknown that have no file, with their targets.
OTHERS = {"CliffWalking-v1": -13.0, "FrozenLake-v1": 0.7, "Taxi-v4": 8.0}
UNKNOWN = (
    "Acrobot-v1", "CartPole-v1", "CyclicMDP-v0", "HalfCheetah-v5", "InvertedDoublePendulum-v5",
    "InvertedPendulum-v5", "LunarLander-v3", "LunarLanderContinuous-v3", "MountainCar-v0",
    "MountainCarContinuous-v0", "Pendulum-v1", "Reacher-v5", "Swimmer-v5", *OTHERS,
)  # fmt: skip


class Outcome(NamedTuple):
    """What a run took, and the mean and standard deviation of EPISODES independent episodes.

    frames: of perturbed episodes. total_frames: of all that the run played.
    """

    task: str
    seed: int
    commit: str
    frames: int
    total_frames: int
    seconds: float
    score: float
    std: float


def main() -> None:
    """Train; a row is in docs/results.md as soon as it is complete."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tasks", nargs="*", metavar="TASK", help="such as CartPole-v1")
    parser.add_argument("--unknown", action="store_true", help="train with configs/unknown.toml")
    parser.add_argument("--seeds", nargs="+", type=int, help="default: 100 to 111")
    parser.add_argument("--keep", type=Path, help="keep runs in this folder, continue those there")
    parser.add_argument("--workers", default="1", help="the trainer's flag")
    arguments = parser.parse_args()
    if arguments.unknown and arguments.seeds:
        parser.error(f"--seeds: --unknown trains with seed {SEEDS[0]} alone. Remove one of them")
    workers = ["--workers", arguments.workers]
    with tempfile.TemporaryDirectory() as folder:
        runs = arguments.keep or Path(folder)
        if arguments.unknown:
            for task in arguments.tasks or UNKNOWN:
                run = runs / f"{task}-unknown"
                write_row(RESULTS, "unknown", unknown_row(task, run, workers))
            return
        for task in arguments.tasks:
            for seed in arguments.seeds or SEEDS:
                if all(seed != outcome.seed for outcome in measured(task)):
                    run = runs / f"{task}-{seed}"
                    outcome = learn(task, CONFIGS / f"{task}.toml", seed, run, workers)
                    print(outcome, flush=True)
                    with OUTCOMES.open("a", newline="") as file:
                        csv.writer(file, lineterminator="\n").writerow(outcome)
            write_row(RESULTS, "learn", learn_row(task, measured(task)))


def measured(task: str) -> list[Outcome]:
    """Return the task's outcomes in learn.csv."""
    with OUTCOMES.open(newline="") as file:
        return [
            Outcome(
                name, int(seed), commit, int(frames), int(total), *map(float, (seconds, score, std))
            )
            for name, seed, commit, frames, total, seconds, score, std in csv.reader(file)
            if name == task
        ]


def learn(task: str, config: Path, seed: int, run: Path, flags: Sequence[str]) -> Outcome:
    """Return the outcome of a run, which is continued if it exists."""
    git = ("git", "rev-parse", "--short", "HEAD")
    commit = subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    latest = run / "latest.safetensors"
    settings: tuple[object, ...] = ("--config", config, "--seed", seed, "--run-dir", run)
    if latest.exists():
        # It has its settings, as its phases have changed them.
        settings = ("--restore", latest, "--trust")
    program(*settings, "--silent", *flags)
    counters = load(str(latest)).counters
    played = play(latest, *rules_of_score(config))
    return Outcome(
        task, seed, commit.strip(), counters.frames, counters.total_frames,
        round(counters.wall_seconds, 1), round(played["mean"], 2), round(played["std"], 2),
    )  # fmt: skip


def rules_of_score(config: Path) -> list[str]:
    """Return the flags that play by the last phase's rules, which a run can end before."""
    settings = tomllib.loads(config.read_text("utf-8"))
    flags = []
    for name in ("env-kwargs", "env-wrapper"):
        changes = [phase[name] for phase in settings.get("phase", ()) if name in phase]
        if changes:
            flags += [f"--{name}", *changes[-1]]
    return flags


def play(checkpoint: Path, *flags: str) -> dict[str, Any]:
    """Return the outcome of --test --json: EPISODES episodes, which decided nothing."""
    independent = ("--trust", "--episodes", EPISODES, "--seed", SEED)
    outcome: dict[str, Any] = json.loads(
        program("--test", "--json", "--restore", checkpoint, *independent, *flags)
    )
    return outcome


def program(*arguments: object) -> str:
    """Return the trainer's output; raise RuntimeError unless it ends, at its target or not."""
    command = [sys.executable, str(ROOT / "main.py"), *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if not ended(result):
        raise RuntimeError(f"{' '.join(command)}: {result.stderr or result.stdout}")
    return result.stdout


def ended(result: subprocess.CompletedProcess[str]) -> bool:
    """Return whether the trainer came to the end of a run, at its target or not."""
    last = (result.stdout.splitlines() or [""])[-1]
    missed = result.returncode == MISSED and last.startswith("Target not reached:")
    return result.returncode == 0 or missed  # a crash has the status MISSED, too


def threshold(task: str, env_name: str) -> tuple[float, str] | None:
    """Return the score that counts as solved, and its source; None where nobody has set one."""
    try:
        of_gymnasium = gymnasium.spec(env_name).reward_threshold
    except gymnasium.error.Error:  # of Atari's former names, or a package that is not installed
        of_gymnasium = None
    return THRESHOLDS.get(task) if of_gymnasium is None else (of_gymnasium, "Gymnasium")


def learn_row(task: str, outcomes: Sequence[Outcome]) -> str:
    """Return a row of the table of tuned settings."""
    settings = tomllib.loads((CONFIGS / f"{task}.toml").read_text("utf-8"))
    budget = settings.get("max-frames")
    within = f"{budget:.2g}" if budget else f"{settings['max-gradient-updates']} updates"
    solved = threshold(task, settings["env-name"])
    scores = sorted(outcome.score for outcome in outcomes)
    steps = sorted(outcome.frames for outcome in outcomes)
    return cells(
        task, f"{solved[0]:g} ({solved[1]})" if solved else "-",
        f"{sum(score >= solved[0] for score in scores)} of {len(scores)}" if solved else "-",
        f"{median(scores):.6g}", f"{scores[0]:.6g} to {scores[-1]:.6g}",
        within.replace("e+0", "e"), f"{median(steps):,.0f}", f"{steps[0]:,} to {steps[-1]:,}",
        f"{median(outcome.total_frames for outcome in outcomes):,.0f}",
        PUBLISHED.get(task, "-"),
    )  # fmt: skip


def unknown_row(task: str, run: Path, flags: list[str]) -> str:
    """Train a task with configs/unknown.toml; return its row."""
    tuned = None
    if task in OTHERS:
        env_name, target, budget = task, OTHERS[task], LEAST
    else:
        file = tomllib.loads((CONFIGS / f"{task}.toml").read_text())
        outcomes = measured(task)
        assert outcomes, f"benchmarks.learn has not trained {task}"
        tuned = int(median(outcome.frames for outcome in outcomes))
        env_name, target = file["env-name"], file["target-return"]
        budget = max(BUDGET * tuned, LEAST)
        if "env-kwargs" in file:
            flags = [*flags, "--env-kwargs", *file["env-kwargs"]]
    known = threshold(task, env_name)
    solved = known[0] if known else target
    flags = [
        *flags, "--env-name", env_name, "--target-return", str(max(target, solved)),
        "--max-frames", str(budget),
    ]  # fmt: skip
    outcome = learn(task, CONFIGS / "unknown.toml", SEEDS[0], run, flags)
    print(outcome, flush=True)
    reached = outcome.score >= solved
    return cells(
        task, f"{solved:g}", "yes" if reached else "no", f"{outcome.frames:,}",
        f"{outcome.frames / tuned:.1f}" if tuned and reached else "-",
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
