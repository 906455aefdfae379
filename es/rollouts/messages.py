"""What a program and the process of its pool send each other."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from es.errors import RunError


class Begin(NamedTuple):
    """The first message to the process. path: the program's `sys.path`, without ""."""

    path: Sequence[str]
    preload: Sequence[str]


class Open(NamedTuple):
    """Make a pool, by `make(recipe, say=..., **settings)`."""

    make: Callable[..., Any]
    recipe: Any
    settings: Mapping[str, Any]


class Call(NamedTuple):
    """Call a method of the pool."""

    method: str
    arguments: tuple[Any, ...]


class Said(NamedTuple):
    """A line for the user."""

    line: str


class Progressed(NamedTuple):
    """How many tasks of a batch are done, and the workers in words."""

    done: int
    workers: str


class Answer(NamedTuple):
    """What a request came to."""

    value: Any
    workers: str


class Failed(NamedTuple):
    """The error that a request ended with."""

    error: RunError
