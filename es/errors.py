"""The errors that end a run with one line instead of a traceback."""

import signal
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from es.interrupts import Interrupted

LONGEST = 1000  # characters of a message
# None of the user's own code.
LIBRARIES = ("es", "gymnasium", "ale_py", "contextlib", "importlib", "torch")
MADE_FOR = " was raised from the environment creator for "  # what Gymnasium adds to some messages


class RunError(Exception):
    """A failure that is not in the user's command; the program ends with `status`.

    message: one line. trace: the traceback that is shown under it, if any. command: the shell's
    command that the message ends with, if any, which is shown on a line of its own.
    """

    status = 1

    def __init__(self, message: str, trace: str = "", command: str = "") -> None:
        super().__init__(message)
        self.message, self.trace, self.command = message, trace, command

    def __str__(self) -> str:
        command = f"  {self.command}" if self.command else ""
        return "\n".join(filter(None, [self.message, command, self.trace]))


class TaskError(RunError):
    """An episode that cannot be played. index: its task's."""

    index = -1


class ClusterError(RunError):
    """Ray, or the whole cluster, has failed."""


class UsageError(RunError):
    """The user's mistake: the message names the flag or file, the value, and the remedy."""

    status = 2

    def __init__(self, message: str, trace: str = "", command: str = "") -> None:
        super().__init__(in_one_line(message), trace, in_one_line(command))


class MisfitError(ValueError):
    """A reward or an observation of another kind than was promised; the message says of which.

    steps_ago: 1 if it came with the step before the one that is being played.
    """

    def __init__(self, message: str, steps_ago: int = 0) -> None:
        super().__init__(message)
        self.steps_ago = steps_ago


@contextmanager
def blaming(what: str) -> Iterator[None]:
    """Turn what a user's code raises in this context into "`what` (its error)".

    Raise UsageError with the traceback of the user's code; RunError, which has the line alone, for
    `sys.exit` and the like.
    """
    try:
        yield
    except BaseException as error:
        if isinstance(error, RunError) or is_the_users_wish(error):
            raise
        line = f"{what} ({in_short(error)})"
        if not isinstance(error, Exception):
            raise RunError(line) from error
        raise UsageError(line, users_trace(error)) from error


def is_the_users_wish(error: BaseException) -> bool:
    """Return whether an exception ends the program because the user wants that."""
    if isinstance(error, KeyboardInterrupt):  # the program itself never has Ctrl-C raise it
        return signal.getsignal(signal.SIGINT) is signal.default_int_handler
    return isinstance(error, Interrupted)


def in_short(error: BaseException) -> str:
    """Return the kind and the message of an exception, in one line."""
    if isinstance(error, RunError):
        return error.message
    if isinstance(error, MisfitError):
        return in_one_line(str(error))
    try:
        words = str(error).partition(MADE_FOR)[0]
    except Exception:  # a class of the user's
        words = ""
    return in_one_line(": ".join(filter(None, [type(error).__name__, " ".join(words.split())])))


def users_trace(error: BaseException) -> str:
    """Return the traceback of an exception, of the user's code alone; "" if there is none."""
    shown: traceback.TracebackException | None = traceback.TracebackException.from_exception(error)
    _leave_out_libraries(shown, error)
    while shown and not shown.stack:  # raised by a library because of what the user's code did
        shown = shown.__cause__ or shown.__context__
    return "".join(shown.format()).rstrip() if shown else ""


def episode_trace(error: BaseException) -> str:
    """Return the traceback of what an episode raised: of the user's code, or else the whole one."""
    if isinstance(error, RunError):
        return ""
    return users_trace(error) or "".join(traceback.format_exception(error)).rstrip()


def _leave_out_libraries(
    shown: traceback.TracebackException | None, error: BaseException | None
) -> None:
    if shown and error:
        shown.stack = traceback.StackSummary.extract(
            (frame, line)
            for frame, line in traceback.walk_tb(error.__traceback__)
            if frame.f_globals.get("__name__", "").partition(".")[0] not in LIBRARIES
        )
        _leave_out_libraries(shown.__cause__, error.__cause__)
        _leave_out_libraries(shown.__context__, error.__context__)


def in_one_line(text: str) -> str:
    """Return a text, perhaps from a hostile file, with escaped control characters, cut short."""
    shown = "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text[:LONGEST]
    )
    return shown + ("..." if len(text) > LONGEST else "")
