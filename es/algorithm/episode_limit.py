"""The step limit of the next update's training episodes."""

from collections.abc import Sequence

MANY, GROWTH = 0.25, 1.5  # if more than this share reaches the cap, it grows by this factor


def variable_cap(lengths: Sequence[int], *, most: int) -> int:
    """Return twice the mean of the last update's `lengths`, at most `most`, as in pytorch-es."""
    return max(1, min(most, 2 * sum(lengths) // len(lengths)))


def adaptive_cap(lengths: Sequence[int], cap: int, *, mean: float, most: int) -> int:
    """Return twice the `mean` length of all episodes so far (Salimans et al. 2017, section 2.1).

    The mean follows slowly when episodes get longer: if many of the last update's `lengths` reached
    `cap`, the next cap is at least GROWTH times as high. most: the upper limit.
    """
    reached = sum(length >= cap for length in lengths) / len(lengths)
    grown = GROWTH * cap if reached > MANY else 0
    return max(1, min(most, int(max(2 * mean, grown))))
