"""How kernels are compiled: once, when their module is imported, and cached for later processes.

The cache lies beside the sources, or else in the user's cache folder; where neither can be written
to, every process that imports the kernels compiles them.
"""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO

import numba

SLOW = 1.0  # seconds after which the user is told
PATIENCE = 20.0  # seconds to wait for others, who may be suspended; the lock only saves work

notify: Callable[[str], None] | None = None  # shows a line to the user
_seconds = 0.0


def compiler(**options: Any) -> Callable[..., Callable[[Callable[..., Any]], Any]]:
    """A decorator, with Numba's options, that takes the signatures to compile a function for.

    Without signatures a function is for use inside other kernels; it may have options of its own,
    such as inline="always", which saves a tenth of a microsecond of handing arrays over. The cache
    sees changes in a kernel's own file only: so that file says the options, and kernels use no
    other file's.
    """

    def kernel(*signatures: Any, **more: Any) -> Callable[[Callable[..., Any]], Any]:
        def compiled(function: Callable[..., Any]) -> Any:
            if not signatures:
                return numba.njit(**options, **more)(function)
            start = time.monotonic()
            try:
                with _one_process_at_a_time():
                    start = time.monotonic()
                    result = numba.njit(list(signatures), cache=True, **options)(function)
                if not result.stats.cache_misses:
                    return result
            except Exception:  # no folder can be written to, a full disk, a damaged cache
                result = numba.njit(list(signatures), **options)(function)
            _spend(time.monotonic() - start)
            return result

        return compiled

    return kernel


@contextmanager
def _one_process_at_a_time() -> Iterator[None]:
    """Who waits here while another process compiles finds the result in the cache."""
    with open(__file__, "rb") as file:
        with suppress(OSError):  # not every file system has locks
            while not _locked(file) and _seconds < PATIENCE:
                _spend(0.01)
                time.sleep(0.01)
        yield


def _locked(file: BinaryIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _spend(seconds: float) -> None:
    """Tells the user, once, when compiling is what the time goes to."""
    global _seconds
    before, _seconds = _seconds, _seconds + seconds
    if before < SLOW <= _seconds and notify:
        notify("Compiling the policies' inner loops, which a cache keeps for later runs ...")
