"""How whole training runs scale with the number of workers and with the population.

Seconds are those of all updates but the first, medians over alternating rounds. Outside rollouts is
the time that is not spent waiting for episodes: asking, ranking, rebuilding noise, the step,
handing over what is written. All runs of a case do the same work, to the bit.
"""

import argparse
import contextlib
import csv
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from es.rollouts.processes import FOR_WORKERS, cores, limit_threads, start_forkserver


class Times(NamedTuple):
    """Seconds of a run's updates but the first, how many of them in rollouts; updates, frames."""

    updating: float
    rollouts: float
    updates: int
    frames: int


def timed(function: Callable[..., Any], spent: list[float]) -> Callable[..., Any]:
    """Return the function, adding the seconds of each call to `spent`."""

    def wrapper(*arguments: Any, **keywords: Any) -> Any:
        start = time.perf_counter()
        try:
            return function(*arguments, **keywords)
        finally:
            spent.append(time.perf_counter() - start)

    return wrapper


def training(*arguments: str) -> Times:
    """Return the times of a training run with these flags; its directory is thrown away."""
    from es import train
    from es.cli import main
    from es.rollouts.pool import WorkerPool

    updates: list[float] = []
    rollouts: list[float] = []
    with contextlib.ExitStack() as stack:
        run = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "run"
        for owner, name, spent in (
            (train.Trainer, "update", updates), (WorkerPool, "results", rollouts)
        ):  # fmt: skip
            call = timed(getattr(owner, name), spent)
            stack.enter_context(mock.patch.object(owner, name, call))
        nowhere = stack.enter_context(open(os.devnull, "w"))
        stack.enter_context(contextlib.redirect_stdout(nowhere))
        status = main([*arguments, "--run-dir", str(run)])
        assert status == 0
        with (run / "progress.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
    frames = int(rows[-1]["frames"]) - int(rows[0]["frames"])
    return Times(sum(updates[1:]), sum(rollouts[1:]), len(rows) - 1, frames)


class Case(NamedTuple):
    """A training run."""

    env: str
    n: int
    updates: int
    flags: tuple[str, ...] = ()

    def run(self, workers: int) -> Times:
        """Return its times with so many workers."""
        return training(
            "--env-name", self.env, "--n", str(self.n), "--max-gradient-updates",
            str(self.updates), "--seed", "1", "--workers", str(workers), *self.flags,
        )  # fmt: skip


BY_WORKERS = (
    Case("CartPole-v1", 40, 150),
    Case("Acrobot-v1", 40, 30),
    Case("PongDeterministic-v4", 40, 4, ("--lr", "0.01", "--useAdam")),
)
# So small a learning rate that all episodes of Acrobot stay 500 steps long.
BY_N = tuple(
    Case("Acrobot-v1", n, max(2, 800 // n), ("--lr", "1e-9")) for n in (10, 40, 160, 640, 1440)
)
HEADER = """\
| environment | n | workers | seconds | steps/s | against 1 worker | outside rollouts, ms | share |
|---|---|---|---|---|---|---|---|"""


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--env", choices=[case.env for case in BY_WORKERS], help="only this one")
    rounds, env = (vars(parser.parse_args())[name] for name in ("rounds", "env"))
    limit_threads()
    start_forkserver(FOR_WORKERS)
    doublings = [2**i for i in range(cores().bit_length()) if 2**i < cores()]
    print(HEADER)
    for case in BY_WORKERS:
        if env in (None, case.env):
            report(case, [*doublings, cores(), case.n + 1], rounds)
    if env is None:
        print(f"\n{HEADER}")
        for case in BY_N:
            report(case, [cores()], rounds)


def report(case: Case, workers: list[int], rounds: int) -> None:
    """Print a row for each number of workers."""
    runs: dict[int, list[Times]] = {count: [] for count in workers}
    for _ in range(rounds):
        for count, times in runs.items():
            times.append(case.run(count))
    for count, times in runs.items():
        outside = [1000 * (run.updating - run.rollouts) / run.updates for run in times]
        share = [100 * (1 - run.rollouts / run.updating) for run in times]
        faster = "-"
        if 1 in runs:
            pairs = zip(runs[1], times, strict=True)
            faster = f"{statistics.median(one.updating / run.updating for one, run in pairs):.2f}"
        print(
            f"| {case.env} | {case.n} | {count} | "
            f"{statistics.median(run.updating for run in times):.2f} | "
            f"{statistics.median(run.frames / run.updating for run in times):.0f} | {faster} | "
            f"{statistics.median(outside):.2f} | {statistics.median(share):.1f} % |",
            flush=True,
        )


if __name__ == "__main__":
    main()
