"""Arguments on a command line: KEY=VALUE, where a value is written as in Python or JSON."""

import ast
import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from es.config.option import is_wrapper


def read_assignments(assignments: Sequence[str]) -> dict[str, Any]:
    """Return the values by key: what neither Python nor JSON can read is a string."""
    return dict(map(_read, assignments))


def read_wrappers(words: Sequence[str]) -> list[dict[str, Any]]:
    """Return what --env-wrapper names: {"name": "MODULE:CALLABLE", "kwargs": {...}} each."""
    starts = [place for place, word in enumerate(words) if is_wrapper(word)]
    return [
        {"name": words[start], "kwargs": read_assignments(words[start + 1 : stop])}
        for start, stop in zip(starts, [*starts[1:], len(words)], strict=True)
    ]


def _read(assignment: str) -> tuple[str, Any]:
    key, _, text = assignment.partition("=")
    for parse in (ast.literal_eval, json.loads):
        with suppress(Exception):  # literal_eval raises many kinds
            value = parse(text)
            json.dumps(value, allow_nan=False)  # plain types only, since a checkpoint holds it
            return key, value
    return key, text
