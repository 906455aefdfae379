"""Wrappers: those that change how an environment is played, and those that a user gives."""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import NormalizeObservation, NormalizeReward

from es.algorithm.noise import Stream, derive_seeds
from es.errors import UsageError, as_usage_error, find_named
from es.rollouts.episode import as_number

StepResult = tuple[Any, Any, bool, bool, dict[str, Any]]


def layers(env: gymnasium.Env) -> Iterator[gymnasium.Env]:
    """Yield an environment's wrappers, from the outermost one, and the environment in them."""
    yield env
    while isinstance(env, gymnasium.Wrapper):
        env = env.env
        yield env


def wrap(env: gymnasium.Env, wrappers: Sequence[Mapping[str, Any]]) -> gymnasium.Env:
    """Return the environment in its described wrappers, the first one innermost.

    wrappers: {"name": "MODULE:CALLABLE", "kwargs": {...}}. Raise UsageError if one cannot be made.
    """
    for wrapper in wrappers:
        name, kwargs = wrapper["name"], wrapper["kwargs"]
        arguments = "".join(f" {key}={value}" for key, value in kwargs.items())
        flag = f"--env-wrapper {name}{arguments}"
        make = find_named("--env-wrapper", name, "wrapper")
        with as_usage_error(f"{flag}: cannot be made"):
            made = make(env, **_arrays(make, kwargs))
        if not isinstance(made, gymnasium.Env):
            raise UsageError(f"{flag}: makes a {type(made).__name__}, not an environment")
        refuse_statistics(made, flag)
        env = made
    return env


def refuse_statistics(env: gymnasium.Env, flag: str) -> None:
    """Raise UsageError, which names `flag`, if a wrapper keeps statistics of what it has seen.

    Each worker process would have other statistics, and no checkpoint would hold them.
    """
    for layer in layers(env):
        normalizes = isinstance(layer, NormalizeObservation | NormalizeReward)
        if normalizes and getattr(layer, "update_running_mean", True):
            raise UsageError(
                f"{flag}: {type(layer).__name__} keeps running statistics, which would differ "
                "between worker processes. Remove it. --obs-norm normalises observations; rewards "
                "need no scale, since returns are ranked"
            )


def _arrays(make: Any, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments, with lists converted where the callable's annotation wants arrays."""
    # An annotation may be a class, a union, or a string.
    parameters = inspect.signature(make).parameters.items()
    wants = {key for key, parameter in parameters if "ndarray" in str(parameter.annotation)}
    return {
        key: np.array(value) if key in wants and isinstance(value, list | tuple) else value
        for key, value in kwargs.items()
    }


class FreshWorld(gymnasium.Wrapper):
    """Make a new Box2D world for each episode, since a used one keeps an order of contacts.

    BipedalWalker-v3 otherwise plays the same seed and actions differently after other episodes.
    """

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Start an episode in a new world."""
        base: Any = self.unwrapped
        base._destroy()
        base.world = type(base.world)(gravity=tuple(base.world.gravity))
        return super().reset(**kwargs)


class SeededSpaces(gymnasium.Wrapper):
    """Seed the spaces of an environment and its wrappers at each reset, since a reset may sample.

    An episode would otherwise depend on those that the process has played before.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        both = [
            space
            for layer in layers(env)
            for space in (layer.observation_space, layer.action_space)
        ]
        self._spaces = [*{id(space): space for space in both}.values()]
        self.step = env.step  # type: ignore[method-assign]  # nothing changes there

    def reset(self, *, seed: int | None = None, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        if seed is not None:
            # Not the episode's own seed: draws from a space would repeat those of the environment.
            seeds = derive_seeds(seed, 0, Stream.SPACES, len(self._spaces))
            for space, space_seed in zip(self._spaces, seeds, strict=True):
                space.seed(space_seed)
        return self.env.reset(seed=seed, **kwargs)


class FrameSkip(gymnasium.Wrapper):
    """Repeat each action for `count` steps, or until the episode ends."""

    def __init__(self, env: gymnasium.Env, count: int) -> None:
        super().__init__(env)
        self._count = count

    def step(self, action: Any) -> StepResult:
        """Return the last step's outcome, with the sum of the rewards."""
        total = 0.0
        for _ in range(self._count):
            observation, reward, terminated, truncated, info = self.env.step(action)
            total += as_number(reward)
            if terminated or truncated:
                break
        return observation, total, terminated, truncated, info


class RandomStart(gymnasium.Wrapper):
    """Begin episodes with 0 to `most` actions that the policy does not choose, by the seed.

    noops: the actions do nothing (0, or zeros; Mnih et al. 2015, methods); otherwise they are
    random.
    """

    def __init__(self, env: gymnasium.Env, most: int, *, noops: bool) -> None:
        super().__init__(env)
        self._most, self._noops = most, noops
        self.step = env.step  # type: ignore[method-assign]  # nothing changes there

    def reset(self, *, seed: int | None = None, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Start an episode; rewards before the policy's first action are not counted."""
        (drawn,) = derive_seeds(seed or 0, 0, Stream.NOOPS, 1)
        most = self._most
        while True:
            outcome = self.env.reset(seed=seed, **kwargs)
            if not self._noops:
                self.env.action_space.seed(drawn)
            for played in range(drawn % (most + 1)):
                observation, _, terminated, truncated, info = self.env.step(self._choose())
                outcome = observation, info
                if terminated or truncated:
                    most = played  # the same actions, but fewer
                    break
            else:
                return outcome

    def _choose(self) -> Any:
        space = self.env.action_space
        if not self._noops:
            return space.sample()
        return np.zeros(space.shape, np.float32) if isinstance(space, spaces.Box) else 0
