"""A first step in an environment, to see whether it keeps to Gymnasium's rules."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium
import numpy as np

from es.errors import UsageError


def check_first_step(env: gymnasium.Env, name: str) -> None:
    """Begins an episode and plays a random step; raises UsageError where that cannot be done.

    Arguments that make no sense often show here only, and better than in the middle of a run.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            env.action_space.seed(0)
            observation, _ = env.reset(seed=0)
            _check(observation, env.observation_space.shape or ())
            outcome: Any = env.step(env.action_space.sample())
            observation, reward, _, _, _ = outcome
            _check(observation, env.observation_space.shape or ())
            if np.ndim(reward) or not np.isfinite(float(reward)):
                raise ValueError(f"its reward is {reward}, not a finite number")
    except Exception as error:  # strangers' environments raise what they like
        words = " ".join(f"{type(error).__name__}: {error}".split())
        raise UsageError(f"--env-name {name}: cannot be played ({words})") from error


def _check(observation: Any, shape: tuple[int, ...]) -> None:
    if np.shape(observation) != shape:
        raise ValueError(
            f"its observation has the shape {np.shape(observation)}, its observation space {shape}"
        )
    if not np.isfinite(np.asarray(observation, np.float64)).all():
        raise ValueError("its observation holds numbers that are not finite")
