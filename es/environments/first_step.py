"""A first step in an environment, to check that it keeps to Gymnasium's rules."""

import copy
import random
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils.env_checker import data_equivalence

from es.algorithm.noise import seed_shared_generators
from es.errors import MisfitError, as_usage_error, users_trace
from es.rollouts.episode import as_number

STARTS = 4  # of the same episode
SECONDS = 0.05  # for all of these


def check_first_step(env: gymnasium.Env, name: str) -> bool:
    """Begin an episode and play a random step; raise UsageError if that fails.

    Arguments that make no sense often fail here only, and that is better than during a run. Return
    False if the same start differs when it is played again, True if not, or if that takes long.
    """
    end = time.perf_counter() + SECONDS
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
        return _repeats_itself(env, end)


def _repeats_itself(env: gymnasium.Env, end: float) -> bool:
    """Return whether starts of the same episode, played until the time `end`, do not differ.

    Errors are left to the run. The generators of the program that loads a policy stay as they are.
    """
    first = None
    with ExitStack() as stack:
        stack.callback(random.setstate, random.getstate())
        stack.callback(np.random.set_state, np.random.get_state())
        stack.enter_context(suppress(Exception))
        for _ in range(STARTS):
            if time.perf_counter() > end:
                break
            seed_shared_generators(0)
            env.action_space.seed(0)
            observation = copy.deepcopy(env.reset(seed=0)[0])
            start = [observation, *env.step(env.action_space.sample())[:4]]
            first = first or copy.deepcopy(start)
            if not data_equivalence(start, first, exact=True):
                return False
    return True


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
