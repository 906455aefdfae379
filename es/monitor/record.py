"""The figures of one update."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from es.rollout import Result


class Record(NamedTuple):
    """One update: a row of progress.csv, with its columns.

    Returns and lengths (in steps) are those of the perturbed episodes. elite_count: perturbations
    above the mean. lr and sigma: as used for this update. grad_norm: of the gradient estimate,
    before the learning rate. steps_per_second: everything played since the previous row.
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
    episode_length_mean: float
    lr: float
    sigma: float
    grad_norm: float
    steps_per_second: float


COLUMNS = Record._fields


def unperturbed_rank(returns: Sequence[float], unperturbed: float) -> int:
    """The place of the unperturbed return among the n + 1: one more than are better."""
    return 1 + sum(value > unperturbed for value in returns)


def describe_batch(results: Sequence[Result], unperturbed: float) -> dict[str, float]:
    """A batch's part of a `Record`, by column. results: those of the n perturbed episodes."""
    returns = np.array([result.episode_return for result in results])
    return {
        "return_mean": float(returns.mean()),
        "return_std": float(returns.std()),
        "return_max": float(returns.max()),
        "return_min": float(returns.min()),
        "unperturbed_return": unperturbed,
        "unperturbed_rank": unperturbed_rank(returns.tolist(), unperturbed),
        "elite_count": int((returns > returns.mean()).sum()),
        "episode_length_mean": float(np.mean([result.steps for result in results])),
    }
