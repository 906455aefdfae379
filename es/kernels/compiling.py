"""How kernels are compiled: once, when their module is imported, and cached for later processes.

The cache lies beside the sources, or else in the user's cache folder; where neither can be written
to, every process that imports the kernels compiles them.
"""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numba

SLOW = 1.0  # seconds after which the user is told

notify: Callable[[str], None] | None = None  # shows a line to the user
_seconds = 0.0


def kernel(*signatures: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compiles a function for these signatures; without any, for use inside other kernels.

    A kernel uses kernels of its own file only: the cache does not see changes in others.
    """
    # "contract" rounds a product and the sum it goes into once, and reorders nothing.
    options: dict[str, Any] = {"fastmath": {"contract"}, "error_model": "numpy", "nogil": True}

    def compiled(function: Callable[..., Any]) -> Any:
        if not signatures:
            return numba.njit(**options)(function)
        with _timed():
            try:
                with _one_process_at_a_time():
                    return numba.njit(list(signatures), cache=True, **options)(function)
            except (RuntimeError, OSError):  # no folder can be written to, or the disk is full
                return numba.njit(list(signatures), **options)(function)

    return compiled


@contextmanager
def _one_process_at_a_time() -> Iterator[None]:
    """Who waits here while another process compiles finds the result in the cache."""
    with open(__file__, "rb") as file:
        with suppress(OSError):  # not every file system has locks
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def _timed() -> Iterator[None]:
    """Tells the user, once, when compiling is what the time goes to."""
    global _seconds
    start = time.monotonic()
    yield
    before, _seconds = _seconds, _seconds + time.monotonic() - start
    if before < SLOW <= _seconds and notify:
        notify("Compiling the policies' inner loops; later runs find them in a cache ...")
