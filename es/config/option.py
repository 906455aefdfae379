"""Declaration of a setting: its default, help text, check and group."""

import dataclasses
import re
from collections.abc import Callable
from itertools import filterfalse
from pathlib import PurePath
from typing import Any, NamedTuple

MAX_WORKERS = 100_000
MOST = 2**53  # up to which whole numbers are the same in JSON, TOML and as TensorBoard's floats


class Check(NamedTuple):
    """What a value must fulfil, in words; bounds: the least and the greatest, if it has them."""

    passes: Callable[[Any], bool]
    words: str
    bounds: tuple[float, float] | None = None


def between(low: float, high: float) -> Check:
    """Return the check of a range, both ends included."""
    words = f"must be from {low:,} to {high:,}"
    return Check(lambda value: low <= value <= high, words, (low, high))


def _assigns(word: str) -> bool:
    """Return whether a word is KEY=VALUE."""
    return "=" in word and word.partition("=")[0].isidentifier()


def is_wrapper(word: str) -> bool:
    """Return whether a word is MODULE:CALLABLE, and not an argument."""
    return re.fullmatch(r"[^\W\d][\w.]*:[^\W\d]\w*", word) is not None


POSITIVE = Check(lambda value: value > 0, "must be above 0")
SEED, LIMIT = between(0, MOST), between(1, MOST)
BATCH, COUNT, BINS = between(2, 10**6), between(1, 10**6), between(2, 65_536)
REPEATS, NOOPS = between(1, 1000), between(0, 1000)
PROBABILITY, FRACTION = between(0, 1), between(1e-6, 1)
AMOUNT, SCALE, STRENGTH = between(-1e30, 1e30), between(1e-30, 1e30), between(0, 1e30)
BELOW_ONE = Check(lambda value: 0 <= value < 1, "must be 0 or more and below 1")
NOT_EMPTY = Check(lambda value: bool(value.strip()), "must not be empty")
WIDTHS = Check(
    lambda value: len(value) <= 100 and all(1 <= width <= 65_536 for width in value),
    "must be the units of 100 layers at most, each from 1 to 65536, or nothing for a linear policy",
)
ASSIGNMENTS = Check(
    lambda value: all(map(_assigns, value)),
    "must be arguments, such as gravity=-9.0 continuous=True",
)
MODULE_CLASS = Check(is_wrapper, "must be MODULE:CLASS, such as my_networks:Policy")
WRAPPERS = Check(
    lambda value: (
        not value or (is_wrapper(value[0]) and all(map(is_wrapper, filterfalse(_assigns, value))))
    ),
    "must be MODULE:CALLABLE and its arguments, such as gymnasium.wrappers:FilterObservation "
    "\"filter_keys=['image']\"",
)
ASCENDING = Check(
    lambda value: not value or (len(value) == 2 and -1e30 <= value[0] < value[1] <= 1e30),
    "must be two numbers, the lower one first, such as -1 1",
)
RAY = Check(
    lambda value: (
        (found := re.fullmatch(r"auto|local|[\w.-]+:(\d{1,5})", value)) is not None
        and 0 < int(found[1] or 1) < 2**16
    ),
    "must be 'auto', 'local' or HOST:PORT of a cluster that this machine belongs to",
)
VIDEO = Check(
    lambda value: value.lower().endswith((".mp4", ".gif")),
    "must be a file whose name ends in .mp4 or .gif",
)
EXPORT = Check(
    lambda value: bool(value.strip()) and PurePath(value).suffix in ("", ".onnx", ".pt2"),
    "must be a file whose name ends in .onnx or .pt2, or has no ending, for both",
)
WORKERS = Check(
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
