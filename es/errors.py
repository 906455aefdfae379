"""Errors that are shown as one line, the traceback of a user's code, and Ctrl-C."""

import difflib
import errno
import importlib
import os
import shlex
import signal
import sys
import traceback
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Self

LONGEST_MESSAGE = 1000  # characters of a message
# Packages whose frames are left out of a user's traceback.
LIBRARIES = ("es", "gymnasium", "ale_py", "contextlib", "importlib", "torch")
MADE_FOR = " was raised from the environment creator for "  # which Gymnasium adds to some messages
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PROJECT = Path(__file__).resolve().parent.parent  # the folder that holds the package
IN_CHECKOUT = PROJECT.name not in ("site-packages", "dist-packages")


class RunError(Exception):
    """A failure that is not in the user's command. The program ends with `status`.

    message: one line. details: lines that are shown under it, such as a traceback.
    """

    status = 1

    def __init__(self, message: str, details: str = "") -> None:
        super().__init__(message)
        self.message, self.details = message, details

    def __str__(self) -> str:
        return "\n".join(filter(None, [self.message, self.details]))


class TaskError(RunError):
    """An episode cannot be played."""


class ClusterError(RunError):
    """Ray, or the whole cluster, has failed."""


class LimitError(RunError):
    """The system allows no more processes or threads, or too little memory."""


class UsageError(RunError):
    """The user's mistake. The message names the flag or file, the value and the remedy."""

    status = 2

    def __init__(self, message: str, details: str = "") -> None:
        super().__init__(in_one_line(message), details)


class MisfitError(ValueError):
    """A reward or an observation is not of the kind that the environment has promised.

    steps_ago: 0 if it came with the current step, 1 if with the one before.
    """

    def __init__(self, message: str, steps_ago: int = 0) -> None:
        super().__init__(message)
        self.steps_ago = steps_ago


def no_more_processes(error: BaseException) -> bool:
    """Return whether this error says that the system allows no more processes or threads."""
    if isinstance(error, OSError):
        return error.strerror == os.strerror(errno.EAGAIN)  # a stream's EAGAIN has other words
    return str(error) == "can't start new thread"  # a RuntimeError


def limit_error(reason: object) -> LimitError:
    """Return the error of a run for which the system allows too few processes or threads."""
    return LimitError(
        f"--workers: the system allows no more processes or threads ({reason}). Raise the limit "
        "(ulimit -u), or use fewer workers (--workers auto)"
    )


@contextmanager
def naming_limits() -> Iterator[None]:
    """Raise LimitError if this context runs out of processes, threads or memory."""
    try:
        yield
    except MemoryError as error:
        raise LimitError(f"there is too little memory ({summary_of(error)})") from error
    except (OSError, RuntimeError) as error:
        if no_more_processes(error):
            raise limit_error(error) from error
        raise


class Interrupted(BaseException):
    """The user ends the program. `except Exception` in a library does not catch it."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.status = 128 + number


class Interrupts:
    """A context that handles Ctrl-C, SIGTERM and a closed terminal.

    Before `defer`, a signal ends the process at once: there is nothing to save, and libraries may
    catch an exception in their imports. A second signal always ends it at once.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._deferred = self._allowed = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in SIGNALS:
            # nohup starts a program with SIGHUP ignored.
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def defer(self) -> None:
        """Make interrupts wait for `allowed` from now on."""
        self._deferred = True

    @contextmanager
    def allowed(self) -> Iterator[None]:
        """Raise Interrupted in this context, at once if an interrupt is waiting."""
        self._allowed = True
        try:
            if self.received is not None:
                raise Interrupted(self.received)
            yield
        finally:
            self._allowed = False

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None or not self._deferred:
            os._exit(128 + number)  # the workers then end themselves
        self.received = number
        if self._allowed:
            raise Interrupted(number)


def execute(run: Callable[[Interrupts], int]) -> int:
    """Run a program, print its RunError if it raises one, and return the exit status."""
    complaint, interrupts = "", Interrupts()
    try:
        with interrupts, naming_limits():
            status = run(interrupts)
    except RunError as error:
        complaint, status = f"error: {error}\n", error.status
    except ModuleNotFoundError as error:
        remedy = f"activate its environment, or {how_to_install('', 'requirements.txt')}"
        complaint = f"error: {error.name} is not installed for {sys.executable}: {remedy}\n"
        status = 1
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


@contextmanager
def as_usage_error(what: str) -> Iterator[None]:
    """Turn an error of a user's code into UsageError "`what` (the error)", with its traceback.

    Raise RunError, without a traceback, for `sys.exit` and the like.
    """
    try:
        yield
    except BaseException as error:
        if isinstance(error, RunError) or is_interrupt(error):
            raise
        line = f"{what} ({summary_of(error)})"
        if not isinstance(error, Exception):
            raise RunError(line) from error
        raise UsageError(line, users_trace(error)) from error


def is_interrupt(error: BaseException) -> bool:
    """Return whether the user ends the program with this exception."""
    if isinstance(error, KeyboardInterrupt):  # Ctrl-C never raises it in this program
        return signal.getsignal(signal.SIGINT) is signal.default_int_handler
    return isinstance(error, Interrupted)


def summary_of(error: BaseException) -> str:
    """Return the kind and the message of an exception in one line."""
    if isinstance(error, RunError):
        return error.message
    if isinstance(error, MisfitError):
        return in_one_line(str(error))
    words = " ".join(str(error).partition(MADE_FOR)[0].split())
    return in_one_line(": ".join(filter(None, [type(error).__name__, words])))


def users_trace(error: BaseException) -> str:
    """Return the frames of the user's code in an exception's traceback, or "" if it has none."""
    trace: traceback.TracebackException | None
    source: BaseException | None
    trace, source = traceback.TracebackException.from_exception(error), error
    traces = []
    while trace and source:
        trace.stack = traceback.StackSummary.extract(
            (frame, line)
            for frame, line in traceback.walk_tb(source.__traceback__)
            if frame.f_globals.get("__name__", "").partition(".")[0] not in LIBRARIES
        )
        traces.append(trace)
        trace = trace.__cause__ or trace.__context__
        source = source.__cause__ or source.__context__
    for trace in traces:
        if trace.stack:  # else a library raised it, because of the next error
            return "".join(trace.format()).rstrip()
    return ""


def episode_trace(error: BaseException) -> str:
    """Return the traceback of an episode's error: the user's frames, or else all of them."""
    if isinstance(error, RunError):
        return ""
    return users_trace(error) or "".join(traceback.format_exception(error)).rstrip()


def in_one_line(text: str) -> str:
    """Return a text, perhaps from a hostile file, with escaped control characters, cut short."""
    shown = "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text[:LONGEST_MESSAGE]
    )
    return shown + ("..." if len(text) > LONGEST_MESSAGE else "")


def counted(count: int, thing: str) -> str:
    """Return such words as "1 worker", "2 workers"."""
    return f"{count} {thing}{'' if count == 1 else 's'}"


def suggest(word: str, known: Collection[str]) -> str:
    """Return the end of a message that suggests the most similar known word, or ""."""
    close = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {close[0]}?" if close else ""


def find_named(flag: str, name: str, what: str) -> Any:
    """Return the callable MODULE:NAME of a user. Raise UsageError if there is none.

    what: the kind of the callable, such as class.
    """
    path, _, word = name.partition(":")
    with as_usage_error(f"{flag} {name}: cannot import {path}"):
        module = importlib.import_module(path)
    if not callable(found := getattr(module, word, None)):
        known = [other for other, value in vars(module).items() if callable(value)]
        raise UsageError(f"{flag} {name}: {path} has no such {what}{suggest(word, known)}")
    return found


def program(tool: str) -> list[str]:
    """Return the words that start a tool (main, compare, sweep), as this one was started."""
    started = Path(sys.argv[0])
    if started.suffix == ".py" and started.resolve().parent == PROJECT:
        # The shell's `python` may be another than that of a virtual environment in this folder.
        python = os.path.relpath(sys.executable)
        python = "python" if python.startswith(os.pardir) else python
        return [python, str(started.with_name(f"{tool}.py"))]
    words = ["es"] if started.name == "es" else ["python", "-m", "es"]
    return words if tool == "main" else [*words, tool]


def command(tool: str, *arguments: object) -> str:
    """Return a command line for the user's shell that starts a tool with arguments."""
    return shlex.join([*program(tool), *map(str, arguments)])


def how_to_install(extra: str, requirements: str) -> str:
    """Return the command that installs this program, or an optional part of it.

    extra: the part's name in pyproject.toml, or "". requirements: its file in a checkout.
    """
    if IN_CHECKOUT:
        return f"pip install -r {requirements}"
    return (
        f'pip install "evolution-strategies[{extra}]"'
        if extra
        else "pip install evolution-strategies"
    )
