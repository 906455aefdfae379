"""progress.csv, read back: its columns, checked, and means over successive updates."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from es.noise import DoubleArray

NEVER_FALL = ("update", "episodes", "frames", "wall_seconds")
RETURNS = ("return_mean", "return_max", "return_min", "unperturbed_return")
NEEDED = (*NEVER_FALL, *RETURNS, "steps_per_second")
LARGEST = 1e150  # a picture's scale is made of squares

Progress = dict[str, DoubleArray]


def read_progress(path: Path) -> Progress:
    """The columns of a progress.csv that are drawn and compared, each (updates,) float64.

    Returns that are not finite are NaN. A last line that is being written is left out; line ends
    and a mark of the encoding may be those of Windows. Raises OSError, and ValueError for what is
    no such table.
    """
    header, _, rows = path.read_text(encoding="utf-8-sig").partition("\n")
    names = header.split(",")
    if missing := [name for name in NEEDED if name not in names]:
        raise ValueError(f"it has no column {missing[0]}")
    rows = rows[: rows.rfind("\n") + 1]
    table = np.empty((0, len(NEEDED)))
    if rows.strip():
        used = [names.index(name) for name in NEEDED]
        lines = io.StringIO(rows)
        try:
            table = np.loadtxt(lines, delimiter=",", comments=None, usecols=used, ndmin=2)
        except ValueError as error:  # which counts rows, and calls no column by its name
            raise ValueError(_first_fault(rows, used) or error) from error
    progress: Progress = dict(zip(NEEDED, table.T, strict=True))
    for name in NEVER_FALL:
        if not np.isfinite(progress[name]).all() or (np.diff(progress[name], prepend=0) < 0).any():
            raise ValueError(f"{name} falls from one row to the next, or is no number")
    for name in RETURNS:
        progress[name] = np.where(np.abs(progress[name]) < LARGEST, progress[name], np.nan)
    return progress


def _first_fault(rows: str, used: Sequence[int]) -> str | None:
    """Where the first cell is missing or no number. used: the places of the columns NEEDED."""
    for number, line in enumerate(rows.split("\n"), start=2):  # after the header
        cells = line.split(",")
        for name, place in zip(NEEDED, used, strict=True) if line else ():
            if place >= len(cells):
                return f"line {number} ends before {name}"
            try:
                float(cells[place])
            except ValueError:
                return f"{name} in line {number} is {cells[place]!r:.40}, which is no number"
    return None


def running_mean(values: DoubleArray, window: int) -> DoubleArray:
    """(updates,): the mean of the last `window` values up to each; of fewer at the beginning.

    NaN are left out of it.
    """
    if not values.size:
        return values
    known, ones = np.isfinite(values), np.ones(min(window, values.size))
    sums = np.convolve(np.where(known, values, 0.0), ones)[: values.size]
    counts = np.convolve(known, ones)[: values.size]
    unknown = np.full(values.size, np.nan)
    return np.divide(sums, counts, out=unknown, where=counts > 0.5)


def smoothing_window(updates: int) -> int:
    """Over how many updates a picture of so many is smoothed."""
    return max(2, min(10, updates // 5), updates // 50)
