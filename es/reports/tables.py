"""Read progress.csv and evaluations.csv, of which only this module knows what to expect."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from es.algorithm.noise import DoubleArray
from es.checkpoint import replace

NEVER_FALL = ("update", "episodes", "frames", "wall_seconds")
RETURNS = ("return_mean", "return_max", "return_min", "unperturbed_return")
OF_UPDATES = (*NEVER_FALL, *RETURNS, "steps_per_second")
OF_EVALUATIONS = ("update", "mean")
LARGEST = 1e150  # a picture's scale is made of squares

Table = npt.NDArray[np.void]  # (rows,), with OF_UPDATES or OF_EVALUATIONS as fields


class TableReader:
    """Read some columns of a table, and later the rows that were added since."""

    def __init__(self, path: Path, columns: Sequence[str] = OF_UPDATES) -> None:
        self._path, self._columns, self._offset, self._line = path, columns, 0, 0
        self._places: dict[str, int] = {}

    def new_rows(self) -> Iterator[dict[str, float]]:
        """Yield the columns of the rows that were not read before.

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
                    self._places = _places(line, self._columns)
                else:
                    yield self._row(line)

    def _row(self, line: bytes) -> dict[str, float]:
        cells = line.split(b",")
        try:
            return {name: float(cells[place]) for name, place in self._places.items()}
        except (ValueError, IndexError) as error:
            shown = repr(line.decode(errors="replace").strip())
            raise ValueError(f"line {self._line} is no row of numbers: {shown:.60}") from error


def _places(header: bytes, columns: Sequence[str]) -> dict[str, int]:
    """Return where the columns are, which may be in any order and among others."""
    names = header.decode("utf-8-sig").strip().split(",")  # Windows marks the encoding
    if missing := [name for name in columns if name not in names]:
        raise ValueError(f"it has no column {missing[0]}")
    return {name: names.index(name) for name in columns}


def read_progress(path: Path) -> Table:
    """Read a whole progress.csv; returns that are not finite become NaN.

    Raise OSError, or ValueError if the file is no such table.
    """
    return _read(path, OF_UPDATES, RETURNS)


def read_evaluations(path: Path) -> Table:
    """Read a whole evaluations.csv as `read_progress` does; without the file, there are no rows."""
    if not path.exists():
        return np.empty(0, _dtype(OF_EVALUATIONS))
    return _read(path, OF_EVALUATIONS, ("mean",))


def _read(path: Path, columns: Sequence[str], returns: Sequence[str]) -> Table:
    rows = TableReader(path, columns).new_rows()
    table = np.fromiter((tuple(row.values()) for row in rows), _dtype(columns))
    for name in set(NEVER_FALL) & set(columns):
        steps = np.diff(table[name], prepend=0)
        if not ((steps >= 0) & (steps < np.inf)).all():
            raise ValueError(f"{name} falls from one row to the next, or is no number")
    for name in returns:
        table[name][~(np.abs(table[name]) < LARGEST)] = np.nan
    return table


def _dtype(columns: Sequence[str]) -> np.dtype[np.void]:
    return np.dtype([(name, np.float64) for name in columns])


def carry_on(path: Path, columns: Sequence[str], update: int) -> int:
    """Leave the header and the rows up to `update`, or start a new table; raise OSError.

    Return the last row's update, -1 without rows. A run that ended between writing a row and its
    checkpoint plays that update again. Lines that are torn, repeated or damaged are dropped.
    """
    kept, last = [header(columns)], -1.0
    for line in path.read_bytes().splitlines(keepends=True) if path.exists() else ():
        with contextlib.suppress(ValueError):
            cells = [[float(number) for number in cell.split(b" ")] for cell in line.split(b",")]
            whole = len(cells) == len(columns) and line.endswith(b"\n")
            if whole and last < cells[0][0] <= update:
                kept.append(line)
                last = cells[0][0]
    replace(path, b"".join(kept))
    return int(last)


def header(columns: Sequence[str]) -> bytes:
    """Return a table's first line."""
    return ",".join(columns).encode() + b"\n"


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
