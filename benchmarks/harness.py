"""Whole training runs inside this process, with a stopwatch on their parts."""

import contextlib
import csv
import os
import platform
import re
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

FIGURES = ("level", "type", "size")  # of a cache, by Linux's names


def processor() -> str:
    """Return the CPU's name and the sizes of its caches, as far as Linux tells them."""
    info, caches = Path("/proc/cpuinfo"), Path("/sys/devices/system/cpu/cpu0/cache")
    name = re.search(r"model name\s*: (.+)", info.read_text() if info.exists() else "")
    parts = [name[1] if name else platform.processor()]
    for index in sorted(caches.glob("index*")):
        level, kind, size = ((index / figure).read_text().strip() for figure in FIGURES)
        if kind != "Instruction":
            parts.append(f"L{level} {size}")
    return ", ".join(parts)


class Times(NamedTuple):
    """Seconds of a run's updates and, of these, in rollouts; how many updates and frames.

    All but the first update, for which workers still start up.
    """

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
            (train.Trainer, "update", updates), (WorkerPool, "evaluate", rollouts)
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
