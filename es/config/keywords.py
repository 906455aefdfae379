"""Settings as a program gives them: by keyword, with Python's own values."""

import ast
import difflib
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from es.config import FIELDS, flag
from es.config.elsewhere import OURS
from es.config.sources import from_mapping
from es.errors import RunError, UsageError

KEYWORDS = [name for name, field in FIELDS.items() if field.metadata["group"] != "watching"]
SOURCE = "learn()"
_BY_FLAG = {flag(name): name for name in KEYWORDS}


@contextmanager
def errors_in_keywords() -> Iterator[None]:
    """Have errors say `max_speed` where they say `--max-speed` to the command line."""
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
            raise UsageError(f"{SOURCE}: {_remedy(name)}")
    plain = {name: _plain(name, value, objects) for name, value in keywords.items()}
    return from_mapping(plain, SOURCE), objects


def _remedy(name: str) -> str:
    if name in FIELDS:
        return f"{name} is for the command line ({flag(name)}); load_policy plays a policy"
    ours = OURS.get(f"--{name.replace('_', '-')}")
    close = [_BY_FLAG[ours]] if ours in _BY_FLAG else difflib.get_close_matches(name, KEYWORDS, n=1)
    return f"unknown setting {name!r}" + (f"; perhaps you meant {close[0]}" if close else "")


def _plain(name: str, value: Any, objects: dict[str, Any]) -> Any:
    if hasattr(value, "tolist"):  # of NumPy or torch
        value = value.tolist()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return tuple(f"{key}={_literal(name, key, item)}" for key, item in value.items())
    if isinstance(value, list | tuple):
        return tuple(_plain(name, item, objects) for item in value)
    if callable(value) and hasattr(value, "__qualname__"):
        if value.__module__ == "__main__":
            objects[value.__qualname__] = value
        return f"{value.__module__}:{value.__qualname__}"
    return value


def _literal(name: str, key: Any, value: Any) -> str:
    """Return an argument's value as it is written on a command line; raise UsageError."""
    value = value.tolist() if hasattr(value, "tolist") else value
    text = repr(os.fspath(value) if isinstance(value, os.PathLike) else value)
    try:
        ast.literal_eval(text)
    except (ValueError, SyntaxError) as error:
        raise UsageError(
            f"{SOURCE}: {name} {key}={text:.100}: must be a number, a string, or a list or dict of "
            "such, as a checkpoint holds it"
        ) from error
    return text
