"""Train tasks with configs/unknown.toml, settings that know none of them.

`python -m benchmarks.unknown [TASK ...]` writes a row for each into RESULTS.md: whether it came to
the target of the task's own file, and in how many times the steps which that file needs, by the
table of `benchmarks/learn.py`. A run may take BUDGET times as many.
"""

import argparse
import re
import tempfile
import tomllib
from pathlib import Path

from benchmarks.learn import RESULTS, ROOT, cells, learn, with_row

UNKNOWN = ROOT / "configs" / "unknown.toml"
BUDGET = 6  # times the steps of the tuned file
# Without a file: the target and the steps to be had.
OTHERS = {
    "CliffWalking-v1": (-13.0, 1_000_000),
    "FrozenLake-v1": (0.7, 1_000_000),
    "Taxi-v4": (8.0, 4_000_000),
}
TASKS = (
    "Acrobot-v1", "CartPole-v1", "CyclicMDP-v0", "HalfCheetah-v5", "InvertedDoublePendulum-v5",
    "InvertedPendulum-v5", "LunarLander-v3", "LunarLanderContinuous-v3", "MountainCar-v0",
    "MountainCarContinuous-v0", "Pendulum-v1", "Reacher-v5", "Swimmer-v5", *OTHERS,
)  # fmt: skip


def main() -> None:
    """Train the tasks, one after the other; a row is in RESULTS.md as soon as it is done."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tasks", nargs="*", metavar="TASK", help="all unless given")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--config", type=Path, default=UNKNOWN, help="other settings, to try")
    parser.add_argument("--dry", action="store_true", help="print only, leave RESULTS.md as it is")
    arguments = parser.parse_args()
    for task in arguments.tasks or TASKS:
        row = row_of(task, arguments.config, arguments.seed)
        print(row, flush=True)
        if not arguments.dry:
            RESULTS.write_text(with_row(RESULTS.read_text("utf-8"), "unknown", row), "utf-8")


def row_of(task: str, config: Path, seed: int) -> str:
    """Return the row of a task, after training it."""
    if task in OTHERS:
        target, budget = OTHERS[task]
        tuned, flags = None, ["--env-name", task]
    else:
        file = tomllib.loads((ROOT / "configs" / f"{task}.toml").read_text())
        assert "target-return" in file, f"{task} has no target"
        target, tuned = file["target-return"], tuned_steps(task)
        budget = BUDGET * tuned
        flags = ["--env-name", file["env-name"]]
        if "env-kwargs" in file:
            flags += ["--env-kwargs", *file["env-kwargs"]]
    flags += ["--target-return", str(target), "--max-frames", str(budget)]
    with tempfile.TemporaryDirectory() as directory:
        outcome = learn(config, seed, Path(directory) / "run", flags)
    times = f"{outcome.steps / tuned:.1f}" if tuned and outcome.solved else "-"
    return cells(
        task, f"{target:g}", "yes" if outcome.solved else "no", f"{outcome.steps:,}", times,
        f"{outcome.seconds:.0f}", f"{outcome.score:.6g}",
    )  # fmt: skip


def tuned_steps(task: str) -> int:
    """Return the median steps of the task's own file, from RESULTS.md."""
    table = RESULTS.read_text("utf-8").partition("<!-- learn -->")[2]
    row = re.search(rf"^\| {task} \|.*$", table, re.MULTILINE)
    assert row, f"benchmarks/learn.py has not trained {task}"
    return int(row[0].split("|")[5].replace(",", ""))


if __name__ == "__main__":
    main()
