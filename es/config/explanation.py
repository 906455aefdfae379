"""What is wrong with a command line that cannot be parsed, in one line."""

from __future__ import annotations

import difflib
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from es.config import FIELDS, TYPES, flag

WORDS = {str: "a string", int: "a whole number", float: "a number", bool: "true or false"}
PLURALS = {str: "strings", int: "whole numbers", float: "numbers"}


def in_words(kind: Any) -> str:
    """What a value of a setting's type is."""
    choices = typing.get_args(kind)
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return " or ".join(in_words(choice) for choice in choices if choice is not type(None))
    if typing.get_origin(kind) is Literal:
        return " or ".join(repr(choice) for choice in choices)
    if typing.get_origin(kind) is tuple:
        return f"a list of {PLURALS[choices[0]]}"
    return WORDS[kind]


def _has_no(name: str) -> bool:
    """Whether a setting has a --no- flag too: one that a file may have switched on."""
    return TYPES[name] is bool and FIELDS[name].metadata["saved"]


def explain(argv: Sequence[str], more: Mapping[str, Any] | None = None) -> str:
    """The first fault of a command line: an unknown flag, or a value that its flag cannot have.

    more: flags beside the trainer's, and the types of their values.
    """
    kinds = {flag(name): TYPES[name] for name in FIELDS} | dict(more or {})
    switches = {flag(name).replace("--", "--no-", 1) for name in FIELDS if _has_no(name)}
    known: str | None = None
    values: list[str] = []
    for place, word in enumerate([*argv, "--"]):
        given, equals, value = word.partition("=")
        if not (word.startswith("--") or re.match("-[A-Za-z]", word)):
            values.append(word)
            continue
        if fault := _fault(known, kinds, values):
            return fault
        spelled = given.replace("_", "-")
        if place < len(argv) and spelled not in kinds and spelled not in switches:
            like = "--" + given.lstrip("-")
            close = difflib.get_close_matches(like, [*kinds, *switches], n=1, cutoff=0.7)
            return f"{given}: there is no such flag" + (
                f"; did you mean {close[0]}?" if close and like != "--" else ""
            )
        known, values = (spelled if spelled in kinds else None), [value] if equals else []
    return f"{' '.join(argv)}: cannot be read; see --help"


def _fault(known: str | None, kinds: Mapping[str, Any], values: Sequence[str]) -> str | None:
    """What is wrong with the values that follow a flag (None: the start, or a --no- flag)."""
    kind = kinds[known] if known else bool
    words = in_words(kind)
    lists = [choice for choice in (kind, *typing.get_args(kind)) if _is_list(choice)]
    if lists:  # of any number of values
        (kind, _) = typing.get_args(lists[0])
        words = f"{PLURALS[kind]}, separated by spaces"
    else:
        count = 0 if kind is bool else 1
        if len(values) < count:
            return f"{known}: {words} must follow"
        if len(values) > count:
            return f"{values[count]}: belongs to no flag"
    wrong = not all(_can_be(value, kind) for value in values)
    return f"{known} {' '.join(values)}: must be {words}" if wrong else None


def _is_list(kind: Any) -> bool:
    return typing.get_origin(kind) is tuple


def _can_be(value: str, kind: Any) -> bool:
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return any(_can_be(value, choice) for choice in typing.get_args(kind))
    if typing.get_origin(kind) is Literal:
        return value in typing.get_args(kind)
    if kind is type(None):
        return value == "None"
    convert: Callable[[str], Any] = kind
    try:
        convert(value)
    except ValueError:
        return False
    return True
