"""A first step in an environment, to check that it keeps to Gymnasium's rules."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium
import numpy as np

from es.errors import MisfitError, as_usage_error, users_trace
from es.rollouts.rollout import as_number


def check_first_step(env: gymnasium.Env, name: str) -> None:
    """Begin an episode and play a random step; raise UsageError if that fails.

    Arguments that make no sense often fail here only, and that is better than during a run.
    """
    with as_usage_error(f"--env-name {name}: cannot be played"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        env.action_space.seed(0)
        with _unpacking("reset", "(observation, info)"):
            observation, _ = env.reset(seed=0)
        _check(observation, env.observation_space)
        with _unpacking("step", "(observation, reward, terminated, truncated, info)"):
            observation, reward, _, _, _ = env.step(env.action_space.sample())
        _check(observation, env.observation_space)
        if not np.isfinite(as_number(reward)):
            raise MisfitError(f"its reward is {reward}, not a finite number")


@contextmanager
def _unpacking(method: str, values: str) -> Iterator[None]:
    """Say what a method must return if a wrapper, or this program, cannot unpack what it does."""
    try:
        yield
    except (TypeError, ValueError) as error:
        if "unpack" not in str(error) or users_trace(error):
            raise
        raise MisfitError(f"its {method}() must return {values}: {error}") from error


def _check(observation: Any, space: gymnasium.Space) -> None:
    if isinstance(space, gymnasium.spaces.Dict):
        for key, part in space.items():
            _check(observation[key], part)
        return
    shape = space.shape or ()
    if np.shape(observation) != shape:
        raise MisfitError(
            f"its observation has the shape {np.shape(observation)}, its observation space {shape}"
        )
    if (kind := np.asarray(observation).dtype).kind not in "biuf":
        raise MisfitError(f"its observation is of the type {kind}, and holds no numbers")
    if not np.isfinite(observation).all():
        raise MisfitError("its observation holds numbers that are not finite")
