"""Read progress.csv, of which only this module knows what to expect."""

import contextlib
from collections.abc import Iterator
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
LARGEST = 1e150  # a picture's scale is made of squares

Progress = npt.NDArray[np.void]  # (updates,), with the columns NEEDED as fields


class ProgressReader:
    """Read the rows of a progress.csv, and later those that were added since."""

    def __init__(self, path: Path) -> None:
        self._path, self._offset, self._line = path, 0, 0
        self._places: dict[str, int] = {}

    def new_rows(self) -> Iterator[dict[str, float]]:
        """Yield the columns NEEDED of the rows that were not read before.

        A last line without its end is being written, and is left for the next time. Raise OSError,
        and ValueError for what is no such table.
        """
        with self._path.open("rb") as file:
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self._offset += len(line)
                self._line += 1
                if self._line == 1:
                    self._places = _places(line)
                else:
                    yield self._row(line)

    def _row(self, line: bytes) -> dict[str, float]:
        cells = line.split(b",")
        try:
            return {name: float(cells[place]) for name, place in self._places.items()}
        except (ValueError, IndexError) as error:
            shown = repr(line.decode(errors="replace").strip())
            raise ValueError(f"line {self._line} is no row of numbers: {shown:.60}") from error


def _places(header: bytes) -> dict[str, int]:
    """Return where the columns NEEDED are, which may be in any order and among others."""
    names = header.decode("utf-8-sig").strip().split(",")  # Windows marks the encoding
    if missing := [name for name in NEEDED if name not in names]:
        raise ValueError(f"it has no column {missing[0]}")
    return {name: names.index(name) for name in NEEDED}


def read_progress(path: Path) -> Progress:
    """Read a whole progress.csv; returns that are not finite become NaN.

    Raise OSError, or ValueError if the file is no such table.
    """
    rows = ProgressReader(path).new_rows()
    progress = np.fromiter((tuple(row.values()) for row in rows), DTYPE)
    for name in NEVER_FALL:
        steps = np.diff(progress[name], prepend=0)
        if not ((steps >= 0) & (steps < np.inf)).all():
            raise ValueError(f"{name} falls from one row to the next, or is no number")
    for name in RETURNS:
        progress[name][~(np.abs(progress[name]) < LARGEST)] = np.nan
    return progress


def carry_progress_on(path: Path, update: int) -> None:
    """Leave the header and the rows up to `update`, or start a new table; raise OSError.

    A run that ended between writing its row and its checkpoint plays that update again. Lines that
    are torn, repeated or damaged are dropped.
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

    At the beginning it is the mean of fewer.
    """
    if not values.size:
        return values
    known, ones = np.isfinite(values), np.ones(min(window, values.size))
    sums = np.convolve(np.where(known, values, 0.0), ones)[: values.size]
    counts = np.convolve(known, ones)[: values.size]
    return np.divide(sums, counts, out=np.full(values.size, np.nan), where=counts > 0.5)


def smoothing_window(updates: int) -> int:
    """Return over how many updates a picture of so many is smoothed."""
    return max(2, min(10, updates // 5), updates // 50)
