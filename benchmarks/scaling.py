"""How whole training runs scale with the number of workers.

Seconds are those of all updates but the first, medians over alternating rounds. Outside rollouts is
the time that is not spent waiting for episodes: asking, ranking, rebuilding noise, the step,
handing over what is written. All runs of a case do the same work, to the bit.
"""

import argparse
import contextlib
import csv
import io
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from unittest import mock

from es.rollouts.processes import FOR_WORKERS, cores, limit_threads, start_forkserver

CASES = {  # by environment: n, updates and further flags
    "CartPole-v1": (40, 150, ()),
    "Acrobot-v1": (40, 30, ()),
    "PongDeterministic-v4": (40, 4, ("--lr", "0.01", "--useAdam")),
}
HEADER = """\
| environment | n | workers | seconds | steps/s | against 1 worker | outside rollouts, ms | share |
|---|---|---|---|---|---|---|---|"""


class Times(NamedTuple):
    """Seconds of a run's updates but the first, how many outside rollouts; updates, frames."""

    updating: float
    outside: float
    updates: int
    frames: int


def train(env: str, workers: int) -> Times:
    """Return the times of a training run; its directory is thrown away."""
    from es.cli import main
    from es.rollouts.pool import WorkerPool

    n, updates, flags = CASES[env]
    results, rollouts = WorkerPool.results, list[float]()

    def timed(*arguments: Any) -> Any:
        start = time.perf_counter()
        found = results(*arguments)
        rollouts.append(time.perf_counter() - start)
        return found

    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(WorkerPool, "results", timed),
        contextlib.redirect_stdout(io.StringIO()),
    ):
        run = Path(folder) / "run"
        status = main([
            "--env-name", env, "--n", str(n), "--max-gradient-updates", str(updates),
            "--seed", "1", "--workers", str(workers), "--run-dir", str(run), *flags,
        ])  # fmt: skip
        assert status == 0
        with (run / "progress.csv").open(newline="") as file:
            first, *_, last = csv.DictReader(file)
    updating = float(last["wall_seconds"]) - float(first["wall_seconds"])
    frames = int(last["frames"]) - int(first["frames"])
    return Times(updating, updating - sum(rollouts[1:]), updates - 1, frames)


def main() -> None:
    """Print a row for each environment and number of workers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--env", choices=CASES, help="only this one")
    arguments = parser.parse_args()
    limit_threads()
    start_forkserver(FOR_WORKERS)
    doublings = [2**i for i in range(cores().bit_length()) if 2**i < cores()]
    print(HEADER)
    for env in [arguments.env] if arguments.env else CASES:
        n = CASES[env][0]
        runs: dict[int, list[Times]] = {count: [] for count in (*doublings, cores(), n + 1)}
        for _ in range(arguments.rounds):
            for count, times in runs.items():
                times.append(train(env, count))
        for count, times in runs.items():
            pairs = zip(runs[1], times, strict=True)
            print(
                f"| {env} | {n} | {count} | {median(run.updating for run in times):.2f} | "
                f"{median(run.frames / run.updating for run in times):.0f} | "
                f"{median(one.updating / run.updating for one, run in pairs):.2f} | "
                f"{median(1000 * run.outside / run.updates for run in times):.2f} | "
                f"{median(100 * run.outside / run.updating for run in times):.1f} % |",
                flush=True,
            )


if __name__ == "__main__":
    main()
