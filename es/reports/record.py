"""The figures of an update, and of an evaluation: rows of progress.csv and evaluations.csv."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from es.algorithm.noise import DoubleArray
from es.algorithm.shaping import Population, mean_and_std
from es.checkpoint import Counters

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


class EvaluationRecord(NamedTuple):
    """An evaluation of the policy after so many updates, as the columns of evaluations.csv.

    frames, wall_seconds: of the training up to there, as in the row of that update. episodes: how
    many fresh ones were played. mean, std, min, max: of their returns. returns: all of these,
    separated by spaces.
    """

    update: int
    frames: int
    wall_seconds: float
    episodes: int
    mean: float
    std: float
    min: float
    max: float
    returns: str


COLUMNS, EVALUATION_COLUMNS = Record._fields, EvaluationRecord._fields


def describe_evaluation(counters: Counters, returns: Sequence[float]) -> EvaluationRecord:
    """Return the row of an evaluation. counters: of the evaluated policy."""
    lowest, highest = float(np.min(returns)), float(np.max(returns))
    return EvaluationRecord(
        counters.update,
        counters.frames,
        counters.wall_seconds,
        len(returns),
        *mean_and_std(returns),
        lowest,
        highest,
        " ".join(map(str, returns)),
    )


def describe_population(population: Population) -> dict[str, Any]:
    """Return a population's part of a `Record`, by column."""
    returns = population.returns[np.isfinite(population.returns)]
    mean, std = mean_and_std(returns)
    return {
        "return_mean": mean,
        "return_std": std,
        "return_max": float(returns.max()),
        "return_min": float(returns.min()),
        "unperturbed_return": population.unperturbed,
        "unperturbed_rank": population.rank,
        "elite_count": int((returns > mean).sum()),
        "non_finite": population.returns.size - returns.size,
        "episode_length_mean": float(np.mean(population.lengths)),
    }
