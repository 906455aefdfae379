"""Read progress.csv, of which only this module knows what to expect."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from es.noise import DoubleArray
from es.reports.record import COLUMNS
from es.runs.directory import replace

NEVER_FALL = ("update", "episodes", "frames", "wall_seconds")
RETURNS = ("return_mean", "return_max", "return_min", "unperturbed_return")
NEEDED = (*NEVER_FALL, *RETURNS, "steps_per_second")
DTYPE = np.dtype([(name, np.float64) for name in NEEDED])
LARGEST = 1e150  # Matplotlib squares the returns to find a picture's scale

Progress = npt.NDArray[np.void]  # (updates,), with the columns NEEDED as fields


def read_progress(path: Path) -> Progress:
    """Return the rows of a progress.csv; returns that are not finite become NaN.

    A last line without a line break is still being written, and is left out. Raise OSError, or
    ValueError if the file is not such a table.
    """
    lines = path.read_bytes().split(b"\n")[:-1]
    places = _places(lines[0]) if lines else ()
    rows = (_row(number, line, places) for number, line in enumerate(lines[1:], start=2))
    progress = np.fromiter(rows, DTYPE)
    for name in NEVER_FALL:
        steps = np.diff(progress[name], prepend=0)
        if not ((steps >= 0) & (steps < np.inf)).all():
            raise ValueError(f"{name} falls from one row to the next, or is no number")
    for name in RETURNS:
        progress[name][~(np.abs(progress[name]) < LARGEST)] = np.nan
    return progress


def _places(header: bytes) -> Sequence[int]:
    """Return the indices of the columns NEEDED; the table may have others, in any order."""
    names = header.decode("utf-8-sig").strip().split(",")  # Windows marks the encoding
    if missing := [name for name in NEEDED if name not in names]:
        raise ValueError(f"it has no column {missing[0]}")
    return [names.index(name) for name in NEEDED]


def _row(number: int, line: bytes, places: Sequence[int]) -> tuple[float, ...]:
    cells = line.split(b",")
    try:
        return tuple(float(cells[place]) for place in places)
    except (ValueError, IndexError) as error:
        shown = repr(line.decode(errors="replace").strip())
        raise ValueError(f"line {number} is no row of numbers: {shown:.60}") from error


def carry_progress_on(path: Path, update: int) -> None:
    """Keep the header and the rows up to `update`, or start a new table; raise OSError.

    A run that ended between writing its row and its checkpoint plays that update again. Torn,
    repeated and damaged lines are dropped.
    """
    kept, last = [",".join(COLUMNS).encode() + b"\n"], 0.0
    for line in path.read_bytes().splitlines(keepends=True) if path.exists() else ():
        with contextlib.suppress(ValueError):
            cells = [float(cell) for cell in line.split(b",")]
            whole = len(cells) == len(COLUMNS) and line.endswith(b"\n")
            if whole and last < cells[0] <= update:
                kept.append(line)
                last = cells[0]
    replace(path, b"".join(kept))


def running_mean(values: DoubleArray, window: int) -> DoubleArray:
    """Return (updates,): the mean of the last `window` values up to each, without NaN.

    The first ones are means of fewer values.
    """
    if not values.size:
        return values
    known, ones = np.isfinite(values), np.ones(min(window, values.size))
    sums = np.convolve(np.where(known, values, 0.0), ones)[: values.size]
    counts = np.convolve(known, ones)[: values.size]
    return np.divide(sums, counts, out=np.full(values.size, np.nan), where=counts > 0.5)


def smoothing_window(updates: int) -> int:
    """Return the number of updates over which a picture of `updates` updates is smoothed."""
    return max(2, min(10, updates // 5), updates // 50)
