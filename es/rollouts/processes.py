"""Start processes quickly, with one thread each, and end them as a whole."""

import atexit
import math
import multiprocessing
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import connection, forkserver, resource_tracker
from pathlib import Path
from typing import IO, NoReturn

from es.errors import IN_CHECKOUT, PROJECT, SIGNALS, UsageError, in_one_line

OPEN_FILES = 8192  # enough for two thousand workers, and below the limit of any system
CORES = "ES_CORES"  # this variable limits the number of cores that are used
PRELOAD = "ES_PRELOAD"  # this variable names the environment whose simulator is preloaded
LOW_PRIORITY = 10  # as `nice` counts
ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1"
)
FOR_WORKERS = (  # modules that workers need
    "es.envs",
    "es.environments.atari",
    "es.networks.actors",
    "es.environments.preload",
)


def modules_for_workers(net: str | None) -> tuple[str, ...]:
    """Return the modules that workers need: torch among them with --net alone."""
    return (*FOR_WORKERS, "es.networks.custom") if net else FOR_WORKERS


def hide_checkout() -> None:
    """Do not search the folder of a checkout, whose `model` and `envs` may hide the user's."""
    if IN_CHECKOUT:
        sys.path[:] = [folder for folder in sys.path if folder != str(PROJECT)]


def search_last() -> None:
    """Search the current folder for the user's modules, after all that is installed.

    A `random.py` there then hides nothing.
    """
    with suppress(ImportError):
        # A package without a file of its own: any google.py on the path would hide it.
        import google  # type: ignore[import-untyped]  # noqa: F401
    with suppress(OSError):  # the folder is gone
        if (here := os.getcwd()) not in sys.path:
            sys.path.append(here)


def leave(status: int) -> NoReturn:
    """End this process with an exit status, at once after its exit handlers.

    Python would free libraries one by one, which takes a second, and wait for threads that an
    environment has left.
    """
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            if stream:  # or whoever started the program has closed it
                stream.flush()
    os._exit(status)


def cores(root: Path = Path("/")) -> int:
    """Return the number of processor cores that this process may use.

    The variable ES_CORES sets it. Otherwise it is the number of cores in the affinity mask, or the
    CPU quota of the container or batch job (control groups of version 2), rounded up, if that is
    less. root: of the system's files. Raise UsageError if ES_CORES is no number above 0.
    """
    if chosen := os.environ.get(CORES):
        if not chosen.isdecimal() or int(chosen) < 1:
            raise UsageError(f"{CORES}={chosen}: must be a whole number above 0")
        return int(chosen)
    if hasattr(os, "sched_getaffinity"):
        count = len(os.sched_getaffinity(0))
    else:
        count = os.cpu_count() or 1
    with suppress(OSError):  # another system
        path = (root / "proc/self/cgroup").read_text().rpartition("0::/")[2].strip()
        group = root / "sys/fs/cgroup" / path
        for folder in (group, *group.parents):
            with suppress(OSError, ValueError):  # there is no such file, or its quota is "max"
                quota, period = map(int, (folder / "cpu.max").read_text().split())
                count = min(count, math.ceil(quota / period))
    return count


def limit_threads() -> None:
    """Give numeric libraries one thread each, here and in child processes; call before imports.

    The workers use all cores; more threads would slow them down and change how sums are rounded.
    """
    os.environ.update(ONE_THREAD)


def start_forkserver(preload: Sequence[str]) -> None:
    """Start the process that workers are forked from; it imports the modules `preload`.

    It runs beside the caller's own imports, and all workers share its memory.
    """
    # Always this package: workers could not import it, as a checkout's folder is not searched.
    forkserver.set_forkserver_preload(["es.rollouts.worker", *preload])
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < (limit := min(hard, OPEN_FILES)):  # the fork server has open files for each worker
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    with starting_helper():
        forkserver.ensure_running()


@contextmanager
def starting_helper() -> Iterator[None]:
    """Hold back Ctrl-C from a process that is started in this context, while it imports.

    A start of a worker may start the fork server again, which may have been killed.
    """
    with variables(importing_variables()), warnings.catch_warnings(action="ignore"):
        # First, since it unblocks the signals. It warns when it is started again.
        resource_tracker.ensure_running()
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


def become_worker() -> None:
    """Leave the terminal's signals to the master, and end this process's group with the master."""
    # The last two would stop a group in the background that uses the terminal.
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTTIN, signal.SIGTTOU):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    end_with_parent()


def end_with_parent() -> None:
    """End this process and its group when its parent has ended, even in a long episode."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    sentinel = parent.sentinel

    def wait() -> None:
        connection.wait([sentinel])
        end_group(os.getpid())
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def end_group(leader: int) -> None:
    """Kill all processes of a group. leader: the process it is named after, which may be dead."""
    with suppress(ProcessLookupError, PermissionError):  # there are none; on macOS, only zombies
        os.killpg(leader, signal.SIGKILL)


def importing_variables() -> dict[str, str]:
    """Return the variables with which a new interpreter finds this package.

    The fork server does not get sys.path: without them it silently preloads nothing, and every
    worker imports everything. The current folder is not searched, since a file there that is named
    like a standard module would be run.
    """
    folders = [str(PROJECT)] if IN_CHECKOUT else []
    path = os.pathsep.join(filter(None, [*folders, os.environ.get("PYTHONPATH")]))
    return {"PYTHONPATH": path, "PYTHONSAFEPATH": "1"}


class Helper(subprocess.Popen[bytes]):
    """A process of low priority that runs `python -m WORDS...` beside a run.

    Its process group is its own, so that Ctrl-C in the terminal does not reach it. Raise OSError if
    it cannot start.
    """

    def __init__(self, *words: str) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `end`)
        super().__init__(
            # -P: do not import from the current folder, where a user's files may have our names.
            ["nice", "-n", str(LOW_PRIORITY), sys.executable, "-P", "-m", *words],
            # MPLBACKEND is for Matplotlib: a notebook may have set one that is not installed here.
            env=os.environ | importing_variables() | {"MPLBACKEND": "agg"},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            process_group=0,
        )

    def end(self) -> str:
        """End it. Return the last line of its errors if it has failed, or else ""."""
        status = self.poll()
        end_group(self.pid)
        self.communicate()
        words = last_error_line(self._errors)
        return in_one_line(words) or f"status {status}" if status else ""


def last_error_line(errors: IO[bytes]) -> str:
    """Return the last line that a process has written to its standard error; close the file."""
    with errors:
        errors.seek(0)
        return errors.read().decode(errors="replace").strip().rpartition("\n")[2]


def start_interpreter(code: str) -> tuple[subprocess.Popen[bytes], connection.Connection]:
    """Start a Python that runs `code`; return it and the connection to it.

    The code calls `connect_to_starter`. The Python is in a session of its own: Ctrl-C in the
    terminal is for this process alone.
    """
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", code, str(theirs.fileno())],
            env=os.environ | importing_variables() | ONE_THREAD,
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
    link = connection.Connection(ours.detach())
    with suppress(OSError):  # it has died, as the caller will find
        link.send([folder or os.getcwd() for folder in sys.path])
    return process, link


def connect_to_starter() -> connection.Connection:
    """Return the connection to the program that has started this interpreter.

    Modules are searched where that program searches them. Raise EOFError if it has ended.
    """
    link = connection.Connection(int(sys.argv[1]))
    sys.path[:] = link.recv()
    return link


@contextmanager
def variables(values: Mapping[str, str]) -> Iterator[None]:
    """Give environment variables these values in this context."""
    before = {name: os.environ[name] for name in values if name in os.environ}
    os.environ.update(values)
    try:
        yield
    finally:
        for name in values.keys() - before.keys():
            os.environ.pop(name, None)
        os.environ.update(before)
