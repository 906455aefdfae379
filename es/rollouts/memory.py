"""How many workers the machine has the memory for."""

from __future__ import annotations

from collections.abc import Callable

import psutil

from es.rollouts.processes import cores


def affordable(wanted: int, pid: int, say: Callable[[str], None]) -> int:
    """`wanted` workers such as the process `pid`, or one per core; `say` is told of the latter."""
    try:
        each = psutil.Process(pid).memory_full_info().uss
    except psutil.NoSuchProcess:  # it will be replaced
        return wanted
    free = psutil.virtual_memory().available
    count = affordable_workers(wanted, each, free)
    if count < wanted:
        say(
            f"{wanted} workers would take {wanted * each / 2**30:.1f} of the "
            f"{free / 2**30:.1f} GiB of free memory: using {count}, one per core."
        )
    return count


def affordable_workers(wanted: int, bytes_each: int, bytes_free: int) -> int:
    """`wanted` workers, or one per core where those would need over half of the free memory."""
    return wanted if wanted * bytes_each <= bytes_free / 2 else min(wanted, cores())
