"""A curve of any length as a few lines of blocks."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import numpy as np

KEPT = 512  # points, at least, of a run that has had as many updates
LARGEST = 1e300  # of the numbers that are shown
BLOCKS = " ▁▂▃▄▅▆▇█"


class History:
    """The numbers of a run of any length; where they are many, means of equally many neighbours."""

    def __init__(self) -> None:
        self.first: float | None = None
        self._means: list[float] = []
        self._each = 1
        self._latest: list[float] = []

    def add(self, value: float) -> None:
        """Takes in the next one, unless it is NaN or too large to be shown."""
        if not abs(value) < LARGEST:
            return
        if self.first is None:
            self.first = value
        self._latest.append(value)
        if len(self._latest) == self._each:
            self._means.append(fmean(self._latest))
            self._latest.clear()
        if len(self._means) == 2 * KEPT:
            self._means = [
                fmean(pair) for pair in zip(self._means[::2], self._means[1::2], strict=True)
            ]
            self._each *= 2

    def curve(self) -> tuple[float, ...]:
        """All so far."""
        return (*self._means, fmean(self._latest)) if self._latest else tuple(self._means)


def blocks(values: Sequence[float], columns: int, lines: int) -> list[str]:
    """The values, or the means of neighbours, as columns that are so many lines high at most."""
    low, high = min(values), max(values)
    halves, marks = np.array(values) / 2, lines * (len(BLOCKS) - 1)  # their differences are finite
    scaled = (halves - low / 2) / ((high / 2 - low / 2) or 1.0)
    parts = np.array_split(scaled, min(columns, len(values)))
    levels = [1 + round(float(part.mean()) * (marks - 1)) for part in parts]
    bases = range(marks - len(BLOCKS) + 1, -1, 1 - len(BLOCKS))
    return [
        "".join(BLOCKS[min(max(level - base, 0), len(BLOCKS) - 1)] for level in levels)
        for base in bases
    ]
