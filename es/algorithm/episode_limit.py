"""How many steps the training episodes of the next update may take at most."""

from __future__ import annotations

from collections.abc import Sequence

MANY, GROWTH = 0.25, 1.5  # when such a share reaches the cap, it grows by this factor


def variable_cap(lengths: Sequence[int], *, most: int) -> int:
    """Twice the mean length of the last update's episodes, as in pytorch-es.

    most: that the user wants.
    """
    return max(1, min(most, 2 * sum(lengths) // len(lengths)))


def adaptive_cap(lengths: Sequence[int], cap: int, *, mean: float, most: int) -> int:
    """Twice the mean length of all episodes so far (Salimans et al. 2017, section 2.1).

    By that alone, episodes that get longer would be cut off for long: where many of the last update
    reached the cap, the next one is half as high again. mean: of the lengths so far, the last ones
    included.
    """
    reached = sum(length >= cap for length in lengths) / len(lengths)
    grown = GROWTH * cap if reached > MANY else 0
    return max(1, min(most, int(max(2 * mean, grown))))
