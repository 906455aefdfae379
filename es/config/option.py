"""Declaration of a setting: its default, help text, check and group."""

import dataclasses
import re
from collections.abc import Callable
from typing import Any

MAX_WORKERS = 100_000
Check = tuple[Callable[[Any], bool], str]
POSITIVE: Check = (lambda value: value > 0, "must be above 0")
COUNT: Check = (lambda value: 1 <= value <= 10**6, "must be from 1 to a million")
REPEATS: Check = (lambda value: 1 <= value <= 1000, "must be from 1 to 1000")
NOOPS: Check = (lambda value: 0 <= value <= 1000, "must be from 0 to 1000")
NOT_NEGATIVE: Check = (lambda value: value >= 0, "must be 0 or more")
NOT_EMPTY: Check = (lambda value: bool(value.strip()), "must not be empty")
TWO_OR_MORE: Check = (lambda value: value >= 2, "must be 2 or more")
PROBABILITY: Check = (lambda value: 0 <= value <= 1, "must be a probability, 0 to 1")
FRACTION: Check = (lambda value: 1e-6 <= value <= 1, "must be above 0 (1e-6) and at most 1")
AMOUNT: Check = (lambda value: abs(value) <= 1e30, "must be between -1e30 and 1e30")
BELOW_ONE: Check = (lambda value: 0 <= value < 1, "must be 0 or more and below 1")
SCALE: Check = (lambda value: 1e-30 <= value <= 1e30, "must be between 1e-30 and 1e30")
STRENGTH: Check = (lambda value: 0 <= value <= 1e30, "must be 0 or more (1e30 at most)")
WIDTHS: Check = (
    lambda value: len(value) <= 100 and all(1 <= width <= 65_536 for width in value),
    "must be the units of 100 layers at most, each from 1 to 65536, or nothing for a linear policy",
)
ASSIGNMENTS: Check = (
    lambda value: all("=" in item and item.partition("=")[0].isidentifier() for item in value),
    "must be arguments of the environment, such as gravity=-9.0 continuous=True",
)
RAY: Check = (
    lambda value: bool(re.fullmatch(r"auto|local|[\w.-]+:\d{1,5}", value)),
    "must be 'auto', 'local' or HOST:PORT of a cluster that this machine belongs to",
)
VIDEO: Check = (
    lambda value: value.lower().endswith((".mp4", ".gif")),
    "must be a file whose name ends in .mp4 or .gif",
)
WORKERS: Check = (
    lambda value: value == "auto" or 0 <= value <= MAX_WORKERS,
    f"must be 'auto', 0 (no worker processes) or the number of processes, {MAX_WORKERS} at most",
)


def option(
    default: Any,
    help: str,  # noqa: A002 (the word that tyro and argparse use)
    check: Check | None = None,
    *,
    group: str,
    name: str | None = None,
    shown: str | None = None,
    algorithm: bool = False,
    saved: bool = True,
) -> Any:
    """Return a field of `Config`.

    check: what a value other than None must fulfil, and the words for it.
    name: the flag's name where it is not the field's with hyphens.
    shown: the default in words, where the value says too little.
    algorithm: whether the setting decides what is computed, so that resuming keeps it.
    saved: whether it belongs to the run (and its settings files) or to this command alone.
    """
    metadata = {
        "group": group, "help": help, "check": check, "name": name, "shown": shown,
        "algorithm": algorithm, "saved": saved,
    }  # fmt: skip
    return dataclasses.field(default=default, metadata=metadata)
