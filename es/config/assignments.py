"""Arguments on a command line: KEY=VALUE, where a value is written as in Python or JSON."""

import ast
import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from es.config.option import is_wrapper
from es.errors import UsageError


def read_assignments(flag: str, assignments: Sequence[str]) -> dict[str, Any]:
    """Return the values by key; raise UsageError, naming the flag, for one that is cut short."""
    return dict(_read(flag, assignment) for assignment in assignments)


def read_wrappers(words: Sequence[str]) -> list[dict[str, Any]]:
    """Return what --env-wrapper names: {"name": "MODULE:CALLABLE", "kwargs": {...}} each."""
    starts = [place for place, word in enumerate(words) if is_wrapper(word)]
    return [
        {"name": words[start], "kwargs": read_assignments("--env-wrapper", words[start + 1 : stop])}
        for start, stop in zip(starts, [*starts[1:], len(words)], strict=True)
    ]


def _read(flag: str, assignment: str) -> tuple[str, Any]:
    key, _, text = assignment.partition("=")
    for parse in (ast.literal_eval, json.loads):
        with suppress(Exception):  # literal_eval raises many kinds
            value = parse(text)
            json.dumps(value, allow_nan=False)  # plain types only, since a checkpoint holds it
            return key, value
    if text.startswith(("[", "{", "(")):
        raise UsageError(
            f"{flag} {assignment}: is no list or dictionary in Python's or JSON's spelling; quote "
            f"the words in it, and the whole for the shell: \"{key}=['a', 'b']\""
        )
    return key, text
