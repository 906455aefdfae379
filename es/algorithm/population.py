"""An update's results, grouped by perturbation."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from es.errors import RunError
from es.rollouts.tasks import Results


class Population(NamedTuple):
    """The results of an update's n perturbations.

    returns: (n,), each the mean over a perturbation's episodes. fitness: (n,), the same with every
    step's reward clipped and shifted, made finite; the update learns from it. lengths: of all n's
    episodes, in steps. unperturbed: the mean return of the unperturbed parameters. rank: one more
    than the number of perturbations that are better.
    """

    returns: npt.NDArray[np.float64]
    fitness: npt.NDArray[np.float64]
    lengths: list[int]
    unperturbed: float
    rank: int


def group_by_perturbation(results: Results, episodes: int, reward_shift: float = 0.0) -> Population:
    """Group the results of `training_tasks`, with this many episodes per perturbation.

    reward_shift: subtracted from the reward of every step. Raise RunError if no perturbation's
    return is finite.
    """
    returns, learned, steps = (
        np.ascontiguousarray(results[field]).reshape(-1, episodes)
        for field in ("episode_return", "clipped_return", "steps")
    )
    with np.errstate(all="ignore"):  # of infinite returns
        means, fitness = returns.mean(axis=1), (learned - reward_shift * steps).mean(axis=1)
    if not np.isfinite(fitness[:-1]).any():
        raise RunError(f"none of {len(means) - 1} returns is a finite number: {means[0]}, ...")
    lengths = steps[:-1].reshape(-1).tolist()
    # A return that is not finite is worse than all that are.
    better = np.isfinite(means[:-1]) & (means[:-1] > means[-1])
    rank = 1 + (int(better.sum()) if np.isfinite(means[-1]) else len(means) - 1)
    return Population(means[:-1], _ranked_last(fitness[:-1]), lengths, float(means[-1]), rank)


def grown(count: int, steps: int, wanted: int, most: int) -> int:
    """Return how many perturbations an update needs, of which `count` have seen `steps` steps.

    They are whole pairs more, at most `most` in all, and as many as would see `wanted` steps in
    episodes of the mean length so far; but an eighth more at the least, since each time that
    perturbations are asked for, the last of their episodes leave workers idle. Return `count` if
    it is enough.
    """
    if steps >= wanted or count >= most:
        return count
    more = max((wanted - steps) * count / steps, count / 8)
    return min(count + 2 * math.ceil(more / 2), most)


def mean_and_std(returns: Sequence[float] | npt.NDArray[np.float64]) -> tuple[float, float]:
    """Return the mean and the standard deviation; NaN if one of the returns is not finite."""
    if not np.isfinite(returns).all():
        return math.nan, math.nan
    with np.errstate(over="ignore", invalid="ignore"):  # of returns near the largest number
        return float(np.mean(returns)), float(np.std(returns))


def _ranked_last(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    finite = np.isfinite(values)
    with np.errstate(over="ignore"):
        below = np.nextafter(values[finite].min(), -np.inf)
    return np.where(finite, values, max(below, np.finfo(np.float64).min))
