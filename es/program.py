"""Code that all command lines share: errors in one line, and streams that may fail."""

import atexit
import contextlib
import difflib
import importlib
import io
import os
import shlex
import signal
import stat
import sys
import threading
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, NoReturn

from es.errors import RunError, UsageError, blaming
from es.interrupts import Interrupts

FOR_WORKERS = (  # modules that workers need
    "es.envs",
    "es.environments.atari",
    "es.networks.actors",
    "es.environments.preload",
)
PROJECT = Path(__file__).resolve().parent.parent  # the folder that holds the package
LAST_SECONDS = 1.0  # for threads to end
IN_CHECKOUT = PROJECT.name not in ("site-packages", "dist-packages")


def hide_doors() -> None:
    """Do not search a checkout's folder: the names of its doors, `model` and `envs`, are common."""
    if IN_CHECKOUT:
        sys.path[:] = [folder for folder in sys.path if folder != str(PROJECT)]


def modules_for_workers(net: str | None) -> tuple[str, ...]:
    """Return the modules that workers need: torch among them with --net alone."""
    return (*FOR_WORKERS, "es.networks.custom") if net else FOR_WORKERS


def search_last(imported: Collection[str]) -> None:
    """If there are modules of the user's own to import, search the current folder for them, too.

    It is searched after all that is installed, so that a `random.py` there hides nothing.
    """
    if imported:
        with contextlib.suppress(ImportError):
            # A package of many parts, which a google.py would hide.
            import google  # type: ignore[import-untyped]  # noqa: F401
        with contextlib.suppress(OSError):  # the folder is gone
            sys.path.append(os.getcwd())


def find_named(flag: str, name: str, what: str) -> Any:
    """Return the callable MODULE:NAME; raise UsageError, with a hint, if there is none."""
    path, _, word = name.partition(":")
    with blaming(f"{flag} {name}: cannot import {path}"):
        module = importlib.import_module(path)
    if not callable(found := getattr(module, word, None)):
        known = [other for other, value in vars(module).items() if callable(value)]
        close = difflib.get_close_matches(word, known, n=1)
        hint = f"; did you mean {path}:{close[0]}?" if close else ""
        raise UsageError(f"{flag} {name}: {path} has no such {what}{hint}")
    return found


def program(tool: str) -> list[str]:
    """Return the words that start a tool: main, compare or sweep, as this one was started."""
    started = Path(sys.argv[0])
    if started.suffix == ".py" and started.resolve().parent == PROJECT:
        # The shell's 'python' may be another than that of a virtual environment in this folder.
        python = os.path.relpath(sys.executable)
        python = "python" if python.startswith(os.pardir) else python
        return [python, str(started.with_name(f"{tool}.py"))]
    words = ["es"] if started.name == "es" else ["python", "-m", "es"]
    return words if tool == "main" else [*words, tool]


def usage_name(tool: str) -> str:
    """Return what the help text calls a tool, and shells complete."""
    words = program(tool)
    return Path(words[-1]).name if words[-1].endswith(".py") else " ".join(words)


def command(tool: str, *arguments: object) -> str:
    """Return the shell's command line that starts a tool with arguments."""
    return shlex.join([*program(tool), *map(str, arguments)])


def execute(run: Callable[[Interrupts], int]) -> int:
    """Run a program, which may raise RunError; return the exit status."""
    if sys.stdout is None:  # closed by whoever started the program
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (for as long as the program runs)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # an ASCII locale shows ? for other characters
    complaint, interrupts = "", Interrupts()
    try:
        with interrupts:
            status = run(interrupts)
    except RunError as error:
        complaint, status = f"error: {error}\n", error.status
    except ModuleNotFoundError as error:
        complaint, status = f"{not_installed(error)}\n", 1
    except BrokenPipeError:  # nobody reads the output any more, as after `| head`
        status = 128 + (interrupts.received or signal.SIGPIPE)
    except OSError as error:  # such as a full disk
        complaint = f"error: {error}\n"
        status = 128 + interrupts.received if interrupts.received else 1
    for stream, last_words in ((sys.stdout, ""), (sys.stderr, complaint)):
        try:
            print(last_words, end="", file=stream, flush=True)
        except OSError:  # drop the text, or Python would print an error at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return status


def read_file(path: str, most: int) -> bytes:
    """Return the bytes of a file.

    Raise OSError, or ValueError unless it is an ordinary file of at most `most` bytes.
    """
    # Without os.O_NONBLOCK, opening a pipe waits for somebody who writes to it.
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("it is not an ordinary file")
        if status.st_size > most:
            raise ValueError(f"it is larger than {most >> 20} MiB")
        return file.read(status.st_size)


def leave(status: int) -> NoReturn:
    """End the program with an exit status, and with it what an environment has left running."""
    if left := end_children():
        _tell_ended(left)
    if lasting_threads():  # Python waits for them before it ends
        threading.Thread(target=_end_soon, args=(status,), daemon=True).start()
    _status.append(status)
    sys.exit(status)


_status: list[int] = []  # of a program that leaves


@atexit.register  # as the first, so it is called as the last
def _end_now() -> None:
    """Skip what Python does after all: it frees libraries one by one, which takes a second."""
    if _status:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):
                stream.flush()
        os._exit(_status[0])


def _end_soon(status: int) -> None:
    time.sleep(LAST_SECONDS)  # those of a pool end by themselves when Python is to end
    if left := lasting_threads():
        _tell_ended(left)
        os._exit(status)


def _tell_ended(what: Sequence[str]) -> None:
    print(f"warning: still running in the end, and ended: {', '.join({*what})}", file=sys.stderr)


def lasting_threads() -> list[str]:
    """Return the threads that keep this process from ending, in words."""
    main = threading.main_thread()
    others = [each for each in threading.enumerate() if not each.daemon and each is not main]
    return [f"thread {each.name}" for each in others]


def end_children() -> list[str]:
    """Kill what this process has started and left; return it in words.

    All but the helpers of multiprocessing, which end by themselves, and sessions of their own.
    """
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:  # most often, there are none
        return []
    import psutil

    ended = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            is_helper = any("from multiprocessing." in word for word in child.cmdline())
            if not is_helper and os.getsid(child.pid) == os.getsid(0):
                name = child.name()
                for each in (child, *child.children(recursive=True)):
                    each.kill()
                ended.append(f"process {name}")
    return ended


def not_installed(error: ModuleNotFoundError) -> str:
    """Return what to tell a user whose Python lacks a library."""
    return (
        f"error: {error.name} is not installed for {sys.executable}: activate the virtual "
        "environment (source .venv/bin/activate), or pip install -r requirements.txt"
    )
