"""Settings as a program gives them: by keyword, with Python's own values."""

import ast
import difflib
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, get_origin

from es.config import FIELDS, TYPES, flag
from es.config.elsewhere import OURS
from es.config.sources import from_mapping
from es.errors import RunError, UsageError

KEYWORDS = [name for name, field in FIELDS.items() if field.metadata["group"] != "watching"]
NAMED = ("env_name", "env_wrapper", "net")  # which may be classes or functions themselves
WRAPPERS = "gymnasium.wrappers"
SOURCE = "arguments"
_BY_FLAG = {flag(name): name for name in KEYWORDS}


@contextmanager
def errors_in_keywords() -> Iterator[None]:
    """Have errors say `max_speed` where they say `--max-speed` to the command line.

    The shell's commands in them stay as they are.
    """
    try:
        yield
    except RunError as error:
        error.message = re.sub(
            r"--[a-zA-Z][a-zA-Z-]*", lambda found: _BY_FLAG.get(found[0], found[0]), error.message
        )
        raise


def from_keywords(keywords: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return settings by field name, and the objects of `__main__` that they name, by their names.

    Arguments may be a dict, sequences lists, numbers NumPy's, paths `Path`s, and what is named as
    MODULE:NAME may be that class or function itself. Raise UsageError for an unknown keyword or a
    value of the wrong type.
    """
    objects: dict[str, Any] = {}
    for name in keywords:
        if name not in KEYWORDS:
            raise UsageError(_remedy(name))
    found = {name: _plain(name, value, objects) for name, value in keywords.items()}
    return from_mapping(found, SOURCE), objects


def _remedy(name: str) -> str:
    if name in FIELDS:
        return f"{name} is for the command line ({flag(name)}); load_policy plays a policy"
    ours = OURS.get(f"--{name.replace('_', '-')}")
    close = [_BY_FLAG[ours]] if ours in _BY_FLAG else difflib.get_close_matches(name, KEYWORDS, n=1)
    return f"unknown setting {name!r}" + (f"; perhaps you meant {close[0]}" if close else "")


def _plain(name: str, value: Any, objects: dict[str, Any]) -> Any:
    """Return a setting's value as the command line has it; see `from_keywords`.

    A list may be left out around its only item, and lists and dicts in it hold more of its items.
    """
    words = tuple(_words(name, value, objects))
    several = get_origin(TYPES[name]) is tuple or isinstance(value, list | tuple | Mapping)
    return words if several else words[0]


def _words(name: str, value: Any, objects: dict[str, Any]) -> Iterator[Any]:
    if hasattr(value, "tolist"):  # of NumPy or torch
        value = value.tolist()
    if isinstance(value, Mapping):
        yield from (f"{key}={_literal(name, key, item)}" for key, item in value.items())
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _words(name, item, objects)
    elif isinstance(value, os.PathLike):
        yield os.fspath(value)
    elif callable(value) and hasattr(value, "__qualname__"):
        if not value.__qualname__.isidentifier():
            raise UsageError(
                f"{name}={value.__qualname__}: must be defined at the top level of a module or "
                "script"
            )
        if value.__module__ == "__main__":
            objects[value.__qualname__] = value
        # Those of Gymnasium have one name, whichever of its files they are in.
        module = WRAPPERS if value.__module__.startswith(WRAPPERS) else value.__module__
        yield f"{module}:{value.__qualname__}"
    elif name in NAMED and not isinstance(value, str | None):
        raise UsageError(
            f"{name}: must be a name, a class or a function (its arguments beside it), not an "
            f"object of {type(value).__name__}"
        )
    else:
        yield value


def _literal(name: str, key: Any, value: Any) -> str:
    """Return an argument's value as it is written on a command line; raise UsageError."""
    value = value.tolist() if hasattr(value, "tolist") else value
    text = repr(os.fspath(value) if isinstance(value, os.PathLike) else value)
    try:
        ast.literal_eval(text)
    except (ValueError, SyntaxError) as error:
        raise UsageError(
            f"{name} {key}={text:.100}: must be a number, a string, or a list or dict of "
            "such, as a checkpoint holds it"
        ) from error
    return text
