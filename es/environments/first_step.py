"""A first step in an environment, to check that it keeps to Gymnasium's rules."""

import warnings
from typing import Any

import gymnasium
import numpy as np

from es.errors import UsageError


def check_first_step(env: gymnasium.Env, name: str) -> None:
    """Begin an episode and play a random step; raise UsageError if that fails.

    Arguments that make no sense often fail here only, and that is better than during a run.
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
    except Exception as error:  # an environment may raise anything
        words = " ".join(f"{type(error).__name__}: {error}".split())
        raise UsageError(f"--env-name {name}: cannot be played ({words})") from error


def _check(observation: Any, shape: tuple[int, ...]) -> None:
    if np.shape(observation) != shape:
        raise ValueError(
            f"its observation has the shape {np.shape(observation)}, its observation space {shape}"
        )
    if not np.isfinite(np.asarray(observation, np.float64)).all():
        raise ValueError("its observation holds numbers that are not finite")
