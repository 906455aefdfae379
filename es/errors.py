"""The errors that end a run with one line instead of a traceback."""

from __future__ import annotations


class RunError(Exception):
    """Something outside the user's command went wrong; the program ends with `status`."""

    status = 1


class UsageError(RunError):
    """The user's mistake: the message names the flag or file, the value, and the remedy."""

    status = 2
