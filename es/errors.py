"""The errors that end a run with one line instead of a traceback."""

LONGEST = 1000  # characters of a message


class RunError(Exception):
    """A failure that is not in the user's command; the program ends with `status`."""

    status = 1


class TaskError(RunError):
    """An episode that cannot be played. index: its task's."""

    index = -1


class ClusterError(RunError):
    """Ray, or the whole cluster, has failed."""


class UsageError(RunError):
    """The user's mistake: the message names the flag or file, the value, and the remedy."""

    status = 2

    def __init__(self, message: str) -> None:
        super().__init__(in_one_line(message))


def in_one_line(text: str) -> str:
    """Return a text, perhaps from a hostile file, with escaped control characters, cut short."""
    shown = "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text[:LONGEST]
    )
    return shown + ("..." if len(text) > LONGEST else "")
