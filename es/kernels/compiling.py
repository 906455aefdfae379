"""Compile kernels once, when their module is imported, and cache them for later processes.

The cache lies in the user's cache folder, or else beside the sources; if neither is writable, every
process that imports the kernels compiles them.
"""

import fcntl
import hashlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import numba
from numba.core.caching import UserWideCacheLocator
from numba.misc.appdirs import AppDirs

from es.kernels import TELL

NUMBA: Any = numba.config
CACHE = Path(
    NUMBA.CACHE_DIR or AppDirs(appname="numba", appauthor=False).user_cache_dir, "es-kernels"
)
SLOW = 1.0  # seconds after which the user is told
PATIENCE = 20.0  # seconds to wait for others, who may be suspended; the lock only saves work

_seconds = 0.0


class ContentLocator(UserWideCacheLocator):
    """Tell Numba a cache folder that depends on a file's content, not on its place.

    All copies of the project share it, such as those that Ray unpacks on its nodes.
    """

    def __init__(self, function: Any, file: str) -> None:
        super().__init__(function, file)
        source = f"{numba.__version__}\0".encode() + Path(file).read_bytes()
        self._folder = CACHE / hashlib.sha256(source).hexdigest()[:32]

    def get_cache_path(self) -> str:
        """Return the folder."""
        return str(self._folder)


LOCATORS = f"{__name__}.{ContentLocator.__name__},InTreeCacheLocator"


def compile_for(*signatures: Any, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator that compiles a function for signatures, with Numba's options.

    Without signatures, other kernels use the function; inline="always" then saves 0.1 us of passing
    arrays. The cache sees changes in a kernel's own file only, so each file states its options, and
    kernels use no other file's functions or constants.
    """

    def compiled(function: Callable[..., Any]) -> Any:
        if not signatures:
            return numba.njit(**options)(function)
        start = time.monotonic()
        try:
            with _one_process_at_a_time(), _own_cache():
                start = time.monotonic()
                result = numba.njit(list(signatures), cache=True, **options)(function)
            if not result.stats.cache_misses:
                return result
        except Exception:  # no writable folder, a full disk, a damaged cache
            result = numba.njit(list(signatures), **options)(function)
        _spend(time.monotonic() - start)
        return result

    return compiled


@contextmanager
def _one_process_at_a_time() -> Iterator[None]:
    """Wait while another process compiles, to find its result in the cache."""
    with ExitStack() as stack:
        with suppress(OSError):  # not every file system has locks, or can be written to
            CACHE.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context(Path(CACHE, "lock").open("ab"))
            while not _locked(file) and _seconds < PATIENCE:
                _spend(0.01)
                time.sleep(0.01)
        yield


@contextmanager
def _own_cache() -> Iterator[None]:
    """Use our cache folder for our functions only, not for those of an environment."""
    before, NUMBA.CACHE_LOCATOR_CLASSES = NUMBA.CACHE_LOCATOR_CLASSES, LOCATORS
    try:
        yield
    finally:
        NUMBA.CACHE_LOCATOR_CLASSES = before


def _locked(file: BinaryIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _spend(seconds: float) -> None:
    """Add to the seconds spent on compiling; tell the user once if they are many."""
    global _seconds
    before, _seconds = _seconds, _seconds + seconds
    if before < SLOW <= _seconds and os.environ.get(TELL):
        with suppress(OSError):
            text = "Compiling the policies' inner loops, which a cache keeps for later runs ..."
            print(text, flush=True)
