"""Fitness shaping: returns -> utilities, the weights of perturbations in the gradient.

All functions take returns (n,) and return (n,) float64; equal returns get equal utilities.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Utilities = npt.NDArray[np.float64]


def ranks(returns: npt.ArrayLike) -> Utilities:
    """Return the rank of each return, 1 for the best; ties share the mean of their ranks."""
    _, inverse, counts = np.unique(
        -np.asarray(returns, dtype=np.float64), return_inverse=True, return_counts=True
    )
    last = np.cumsum(counts)
    return ((last - counts + 1 + last) / 2)[inverse]


def nes_utilities(returns: npt.ArrayLike) -> Utilities:
    """Return max(0, log2(n/2 + 1) - log2(rank)), scaled to sum to 1, + 1/n.

    Natural Evolution Strategies (Wierstra et al. 2014, section 3.1) subtract 1/n; pytorch-es adds
    it. Between the members of a mirrored pair the constant cancels. The gradient divides by n, as
    in pytorch-es and unlike NES, so that the step shrinks as n grows.
    """
    n = np.size(returns)
    raw = np.maximum(0.0, np.log2(n / 2 + 1) - np.log2(ranks(returns)))
    return raw / raw.sum() + 1 / n


def centered_ranks(returns: npt.ArrayLike) -> Utilities:
    """Return ranks scaled to 0.5 (best) ... -0.5 (Salimans et al. 2017, section 2.1)."""
    return 0.5 - (ranks(returns) - 1) / (np.size(returns) - 1)


def normalized(returns: npt.ArrayLike) -> Utilities:
    """Return (return - mean) / standard deviation, or zeros if all are equal.

    Augmented Random Search divides by the deviation too (Mania et al. 2018, section 3.1).
    """
    values = np.asarray(returns, dtype=np.float64)
    if not np.ptp(values):
        return np.zeros_like(values)  # the deviations might not be 0 due to rounding
    deviations = values - values.mean()
    deviations /= np.abs(deviations).max()  # so that no square overflows
    return deviations / deviations.std()


def raw(returns: npt.ArrayLike) -> Utilities:
    """Return a copy of the returns."""
    return np.array(returns, dtype=np.float64)


SHAPINGS: dict[str, Callable[[npt.ArrayLike], Utilities]] = {
    "nes": nes_utilities,
    "centered-rank": centered_ranks,
    "normalized": normalized,
    "raw": raw,
}
