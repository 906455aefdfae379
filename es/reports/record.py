"""The figures of one update: a row of progress.csv."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from es.algorithm.population import Population
from es.noise import DoubleArray

Figures = Mapping[str, float]  # by the names that they are shown under
Distributions = Mapping[str, DoubleArray]  # by name, too: many numbers each


class Record(NamedTuple):
    """One update, as the columns of progress.csv.

    Returns are those of the perturbations; lengths (in steps) are those of all their episodes.
    elite_count: perturbations above the mean. non_finite: perturbations whose return was NaN or
    infinite; the other figures leave them out. lr, sigma: as used for this update. grad_norm: of
    the gradient estimate, before the learning rate. steps_per_second: of everything played since
    the previous row.
    """

    update: int
    episodes: int
    frames: int
    wall_seconds: float
    return_mean: float
    return_std: float
    return_max: float
    return_min: float
    unperturbed_return: float
    unperturbed_rank: int
    elite_count: int
    non_finite: int
    episode_length_mean: float
    lr: float
    sigma: float
    grad_norm: float
    steps_per_second: float


COLUMNS = Record._fields


def describe_population(population: Population) -> dict[str, Any]:
    """Return a population's part of a `Record`, by column."""
    returns = population.returns[np.isfinite(population.returns)]
    # One more than the number of better ones; a return that is not finite is worse than all.
    better = int((returns > population.unperturbed).sum())
    rank = 1 + (better if np.isfinite(population.unperturbed) else population.returns.size)
    return {
        "return_mean": float(returns.mean()),
        "return_std": float(returns.std()),
        "return_max": float(returns.max()),
        "return_min": float(returns.min()),
        "unperturbed_return": population.unperturbed,
        "unperturbed_rank": rank,
        "elite_count": int((returns > returns.mean()).sum()),
        "non_finite": population.returns.size - returns.size,
        "episode_length_mean": float(np.mean(population.lengths)),
    }
