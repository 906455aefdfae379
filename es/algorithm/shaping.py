"""Turn an update's episodes into its perturbations' utilities, and into the next step limit.

Fitness shaping turns returns, (n,), into utilities, (n,) float64: equal returns into equal ones.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from es.algorithm.noise import DoubleArray
from es.errors import RunError

CAP_REACHED, CAP_GROWTH = 0.25, 1.5  # if a larger share of episodes reaches the cap, multiply it


class Population(NamedTuple):
    """The episodes of an update's n perturbations.

    returns: (n,), each the mean over a perturbation's episodes. fitness: (n,), the same with every
    step's reward clipped and shifted, made finite; the update learns from it. lengths: of all
    perturbations' episodes, in steps. unperturbed: the mean return of the unperturbed parameters.
    unperturbed_rank: one more than the number of perturbations that are better.
    """

    returns: DoubleArray
    fitness: DoubleArray
    lengths: list[int]
    unperturbed: float
    unperturbed_rank: int


def group_by_perturbation(
    returns: npt.ArrayLike,
    steps: npt.ArrayLike,
    episodes: int,
    *,
    clipped: npt.ArrayLike | None = None,
    reward_shift: float = 0.0,
) -> Population:
    """Group episodes by perturbation; those of the unperturbed parameters come last.

    returns, steps: ((n + 1) * episodes,), of each episode. clipped: returns of clipped rewards, to
    learn from. reward_shift: subtracted from the reward of every step. Raise RunError if no
    perturbation's return is finite, clipped and as it is.
    """
    played = np.asarray(returns, np.float64).reshape(-1, episodes)
    lengths = np.asarray(steps).reshape(-1, episodes)
    learned = played if clipped is None else np.asarray(clipped, np.float64).reshape(-1, episodes)
    with np.errstate(all="ignore"):  # of infinite returns
        means, fitness = played.mean(axis=1), (learned - reward_shift * lengths).mean(axis=1)
    finite = np.isfinite(fitness[:-1]) & np.isfinite(means[:-1])
    if not finite.any():
        raise RunError(f"none of {finite.size} returns is a finite number: {means[0]}, ...")
    # A return that is not finite is worse than all that are.
    worst = np.nextafter(fitness[:-1][finite].min(), -np.inf)
    fitness = np.where(finite, fitness[:-1], worst)
    better = np.isfinite(means[:-1]) & (means[:-1] > means[-1])
    rank = 1 + (int(better.sum()) if np.isfinite(means[-1]) else finite.size)
    return Population(means[:-1], fitness, lengths[:-1].ravel().tolist(), float(means[-1]), rank)


def perturbations_needed(count: int, steps: int, wanted: int, most: int) -> int:
    """Return how many perturbations an update needs, of which `count` have seen `steps` steps.

    Whole pairs are added, enough for `wanted` steps at the mean length so far, and at most `most`
    perturbations in all. At least an eighth is added, since the last episodes of each addition
    leave workers idle. Return `count` if it is enough.
    """
    if steps >= wanted or count >= most:
        return count
    more = max((wanted - steps) * count / steps, count / 8)
    return min(count + 2 * math.ceil(more / 2), most)


def mean_and_std(returns: Sequence[float] | DoubleArray) -> tuple[float, float]:
    """Return the mean and the standard deviation; NaN if one of the returns is not finite."""
    if not np.isfinite(returns).all():
        return math.nan, math.nan
    return float(np.mean(returns)), float(np.std(returns))


def variable_cap(lengths: Sequence[int], *, most: int) -> int:
    """Return twice the mean of the last update's `lengths`, at most `most`, as in pytorch-es."""
    return max(1, min(most, 2 * sum(lengths) // len(lengths)))


def adaptive_cap(lengths: Sequence[int], cap: int, *, mean: float, most: int) -> int:
    """Return twice the `mean` length of all episodes so far (Salimans et al. 2017, section 2.1).

    The mean follows slowly when episodes get longer: if many of the last update's `lengths` reached
    `cap`, the next cap is at least CAP_GROWTH times as high. most: the upper limit.
    """
    reached = sum(length >= cap for length in lengths) / len(lengths)
    least = CAP_GROWTH * cap if reached > CAP_REACHED else 0
    return max(1, min(most, int(max(2 * mean, least))))


def ranks(returns: npt.ArrayLike) -> DoubleArray:
    """Return the rank of each return, 1 for the best; ties share the mean of their ranks."""
    _, inverse, counts = np.unique(
        -np.asarray(returns, dtype=np.float64), return_inverse=True, return_counts=True
    )
    last = np.cumsum(counts)
    return ((last - counts + 1 + last) / 2)[inverse]


def nes_utilities(returns: npt.ArrayLike) -> DoubleArray:
    """Return max(0, log2(n/2 + 1) - log2(rank)), scaled to sum to 1, + 1/n.

    Natural Evolution Strategies (Wierstra et al. 2014, section 3.1) subtract 1/n; pytorch-es adds
    it. Between the members of a mirrored pair the constant cancels. The gradient divides by n, as
    in pytorch-es and unlike NES, so that the step shrinks as n grows.
    """
    n = np.size(returns)
    raw = np.maximum(0.0, np.log2(n / 2 + 1) - np.log2(ranks(returns)))
    return raw / raw.sum() + 1 / n


def centered_ranks(returns: npt.ArrayLike) -> DoubleArray:
    """Return ranks scaled to 0.5 (best) ... -0.5 (Salimans et al. 2017, section 2.1)."""
    return 0.5 - (ranks(returns) - 1) / (np.size(returns) - 1)


def normalized(returns: npt.ArrayLike) -> DoubleArray:
    """Return (return - mean) / standard deviation, or zeros if all are equal.

    Augmented Random Search divides by the deviation too (Mania et al. 2018, section 3.1).
    """
    values = np.asarray(returns, dtype=np.float64)
    if not np.ptp(values):
        return np.zeros_like(values)  # the deviations might not be 0 due to rounding
    deviations = values - values.mean()
    deviations /= np.abs(deviations).max()  # so that no square overflows
    return deviations / deviations.std()


def raw(returns: npt.ArrayLike) -> DoubleArray:
    """Return a copy of the returns."""
    return np.array(returns, dtype=np.float64)


SHAPINGS: dict[str, Callable[[npt.ArrayLike], DoubleArray]] = {
    "nes": nes_utilities,
    "centered-rank": centered_ranks,
    "normalized": normalized,
    "raw": raw,
}
