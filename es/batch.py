"""An update's results, put together by perturbation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from es.rollout import Result


class Batch(NamedTuple):
    """What the n perturbations of an update came to.

    returns: (n,), each the mean of a perturbation's episodes. fitness: (n,), the same with every
    step's reward shifted: what is learned from. lengths: of all their episodes, in steps.
    unperturbed: the mean return of the unperturbed parameters.
    """

    returns: npt.NDArray[np.float64]
    fitness: npt.NDArray[np.float64]
    lengths: list[int]
    unperturbed: float


def put_together(results: Sequence[Result], episodes: int, reward_shift: float = 0.0) -> Batch:
    """The results of `training_tasks`, of so many episodes each.

    reward_shift: is subtracted from the reward of every step.
    """
    returns = np.array([result.episode_return for result in results]).reshape(-1, episodes)
    steps = np.array([result.steps for result in results]).reshape(-1, episodes)
    means, fitness = returns.mean(axis=1), (returns - reward_shift * steps).mean(axis=1)
    return Batch(means[:-1], fitness[:-1], steps[:-1].reshape(-1).tolist(), float(means[-1]))
