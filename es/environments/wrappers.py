"""Wrappers that change how an environment is played."""

from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from es.algorithm.noise import Stream, derive_seeds
from es.rollouts.episode import as_number

Outcome = tuple[Any, Any, bool, bool, dict[str, Any]]


def layers(env: gymnasium.Env) -> Iterator[gymnasium.Env]:
    """Yield an environment's wrappers, from the outermost one, and the environment in them."""
    yield env
    while isinstance(env, gymnasium.Wrapper):
        env = env.env
        yield env


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

    A worker's first episode would otherwise draw from a generator without a seed, and each further
    one from where the episode before it has left the generator.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        both = [
            each for layer in layers(env) for each in (layer.observation_space, layer.action_space)
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

    def step(self, action: Any) -> Outcome:
        """Return the last step's outcome, with the sum of the rewards."""
        total = 0.0
        for _ in range(self._count):
            observation, reward, terminated, truncated, info = self.env.step(action)
            total += as_number(reward)
            if terminated or truncated:
                break
        return observation, total, terminated, truncated, info


class OneHot(gymnasium.ObservationWrapper):
    """Show the numbers of a Discrete space as one-hot vectors.

    Gymnasium's flatten makes them of integers, which the kernels do not take as such.
    """

    def __init__(self, env: gymnasium.Env, space: spaces.Discrete) -> None:
        super().__init__(env)
        self._size, self._start = int(space.n), int(space.start)
        self.observation_space = spaces.Box(0, 1, (self._size,), np.float32)

    def observation(self, observation: Any) -> np.ndarray:
        """Return a new vector: (n,) float32."""
        vector = np.zeros(self._size, np.float32)
        vector[observation - self._start] = 1
        return vector


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
                self.env.action_space.seed(drawn % 2**32)
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
