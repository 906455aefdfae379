"""Returns -> utilities: the weights with which perturbations enter the gradient."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def ranks(returns: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """The rank of each return, 1 for the best; ties share the mean of their ranks.

    returns: (n,); the result: (n,) float64.
    """
    _, inverse, counts = np.unique(
        -np.asarray(returns, dtype=np.float64), return_inverse=True, return_counts=True
    )
    last = np.cumsum(counts)
    return ((last - counts + 1 + last) / 2)[inverse]


def nes_utilities(returns: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Rank-based fitness shaping: max(0, log2(n/2 + 1) - log2(rank)), scaled to sum to 1, + 1/n.

    Natural Evolution Strategies (Wierstra et al. 2014, section 3.1) subtract 1/n where pytorch-es
    adds it; between the members of a mirrored pair the constant cancels.

    returns: (n,); the result: (n,) float64.
    """
    n = np.size(returns)
    raw = np.maximum(0.0, np.log2(n / 2 + 1) - np.log2(ranks(returns)))
    return raw / raw.sum() + 1 / n
