"""Starting processes quickly, with one thread each and within the system's limits."""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing import connection

from es.errors import UsageError
from es.program import IN_CHECKOUT, PROJECT

OPEN_FILES = 8192  # enough for two thousand workers, and less than any system's ceiling
CORES = "ES_CORES"  # the variable that says how many cores are to be used, where not all are
PRELOAD = "ES_PRELOAD"  # the variable that names the environment whose simulator is preloaded
ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1"
)
TERMINAL_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def cores() -> int:
    """The number of processor cores this process may use."""
    if chosen := os.environ.get(CORES):
        return int(chosen)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def limit_threads() -> None:
    """One thread for every numeric library imported from now on, here and in child processes.

    Workers fill the cores; threads inside them would only fight, and change how sums are rounded.
    """
    os.environ.update(ONE_THREAD)


def start_forkserver(preload: Sequence[str]) -> None:
    """Starts the process that workers are forked from; it imports the modules `preload`.

    It works beside the caller's own imports, and its memory is shared by all workers.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(preload))
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Children inherit the limit, and this one holds a file for each worker.
    allow_open_files(OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES))
    from multiprocessing import forkserver

    try:
        with for_helpers():
            forkserver.ensure_running()
    except OSError as error:  # its socket lies in the folder for temporary files
        raise UsageError(
            f"--workers: cannot start worker processes ({error}); set TMPDIR to a short path "
            "that exists, or use --workers 0"
        ) from error


@contextmanager
def for_helpers() -> Iterator[None]:
    """Where helpers may be started, whose imports Ctrl-C is not to interrupt.

    The fork server may be started at any start of a worker: it can be killed.
    """
    from multiprocessing import resource_tracker

    with variables(importing_variables()), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the resource tracker was killed, and is relaunched
        resource_tracker.ensure_running()  # first, since it lets go of the signals held here
        with _terminal_signals_held():
            yield


def end_with_parent() -> None:
    """Has this process end when its parent is gone, however it went, even in a long episode."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    sentinel = parent.sentinel

    def wait() -> None:
        connection.wait([sentinel])
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def allow_open_files(wanted: int) -> None:
    """Raises the limit on open files to `wanted` if it is lower; UsageError where it cannot."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, OverflowError, ValueError) as error:
        raise UsageError(
            f"--workers: so many processes need {wanted} open files, and the system allows {hard}; "
            "use fewer (--workers auto)"
        ) from error


def importing_variables() -> dict[str, str]:
    """Return the variables with which a new interpreter finds this package.

    The fork server does not take over sys.path: without them nothing is preloaded, silently, and
    every worker imports everything by itself. The folder that the program was started in is not
    searched first, as it would be: whatever is called like a standard module there would be run.
    """
    folders = [str(PROJECT)] if IN_CHECKOUT else []
    path = os.pathsep.join(filter(None, [*folders, os.environ.get("PYTHONPATH")]))
    return {"PYTHONPATH": path, "PYTHONSAFEPATH": "1"}


@contextmanager
def variables(values: Mapping[str, str]) -> Iterator[None]:
    """Give environment variables these values in here, and restore what they had before."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _terminal_signals_held() -> Iterator[None]:
    """A program started in here never gets them; here, they come when this ends.

    Ctrl-C reaches every process of the terminal, and would interrupt the fork server's imports.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, TERMINAL_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, TERMINAL_SIGNALS)
