"""How long checkpointing, logging and drawing hold the training loop up.

Two measures over 60 CartPole updates, medians of paired runs: the time the loop spends inside the
calls that report and save, and the whole loop's time against one that reports and saves nothing.
"""

import contextlib
import os
import statistics
import sys
import tempfile
from collections.abc import Callable
from typing import Any
from unittest import mock

from benchmarks.harness import timed
from es.program import FOR_WORKERS
from es.rollouts.processes import limit_threads, start_forkserver

PAIRS, UPDATES = 5, 60
ARGUMENTS = (
    "--small-net", "--env-name", "CartPole-v1", "--max-gradient-updates", str(UPDATES), "--silent"
)  # fmt: skip


def loop(seed: int, *, report: bool) -> tuple[float, float]:
    """Return the seconds of a run's loop, and those of them spent on reporting and saving."""
    from es import train
    from es.main import main
    from es.reports.reporter import Reporter
    from es.reports.terminal import Terminal

    loops: list[float] = []
    spent: list[float] = []
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        stack.enter_context(
            mock.patch.object(train.Trainer, "run", timed(train.Trainer.run, loops))
        )
        for owner, name in (
            (Reporter, "commit"), (Terminal, "report"), (train.Trainer, "_checkpoint")
        ):  # fmt: skip
            real = getattr(owner, name)
            quiet: Callable[..., Any] = lambda *arguments, **keywords: {}  # noqa: E731
            call = timed(real, spent) if report else quiet
            stack.enter_context(mock.patch.object(owner, name, call))
        stack.enter_context(contextlib.redirect_stdout(open(os.devnull, "w")))  # noqa: SIM115
        main([*ARGUMENTS, "--seed", str(seed), "--run-dir", f"{directory}/run", *sys.argv[1:]])
    return loops[0], sum(spent)


def main() -> None:
    """Print both measures."""
    limit_threads()
    start_forkserver(FOR_WORKERS)
    loop(0, report=True)  # imports
    inside, ratios = [], []
    for pair in range(PAIRS):
        silent, _ = loop(pair, report=False)
        whole, spent = loop(pair, report=True)
        inside.append(spent / whole)
        ratios.append(whole / silent)
        print(f"seed {pair}: loop {whole:.2f} s, without reports {silent:.2f} s, "
              f"inside reports {spent:.3f} s", flush=True)  # fmt: skip
    print(f"share of the loop inside reports: median {100 * statistics.median(inside):.1f} %")
    print(f"loop with reports / without: median {statistics.median(ratios):.3f}")


if __name__ == "__main__":
    main()
