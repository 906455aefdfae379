"""What a policy sees of an environment's observations as Gymnasium makes them."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, iterate

from es.environments.parts import PartsView
from es.environments.screens import image_view
from es.environments.spaces import (
    is_image,
    is_text,
    is_vector,
    picture_key,
    take_picture,
    without_text,
)


class View:
    """Turn an environment's observations into what the network sees.

    bare: the environment as `es.envs.make_bare_env` makes it. shaped: as for `as_vector`.
    """

    def __init__(self, bare: gymnasium.Env, *, shaped: bool = False) -> None:
        self._space = bare.observation_space
        env = bare if shaped else take_picture(bare)
        space = without_text(env.observation_space)
        key = picture_key(bare.observation_space)
        self._see: Callable[[Any], Any] = np.asarray
        self.reset: Callable[[], None] = lambda: None  # starts an episode
        if is_image(space):
            view = image_view(env)
            self._see = lambda seen: view(np.asarray(seen if key is None else seen[key]))
            self.reset = view.reset
        elif shaped and isinstance(space, spaces.Dict):
            self._see = parts = PartsView(bare)
            self.reset = parts.reset
        elif not (is_vector(space) or (shaped and isinstance(space, spaces.Box))):
            self._see = partial(spaces.flatten, space)

    def __call__(self, observation: Any) -> Any:
        """Return an image, an array, or a dict of these, valid until the next call.

        Raise ValueError if the observation does not have the shape of its space.
        """
        _check_fit(observation, self._space)
        return self._see(observation)


def as_given(space: spaces.Space, observation: Any) -> spaces.Space:
    """Return the space for `split`, of an environment that gives such an observation.

    Numbers of Discrete may come as arrays of one, which are otherwise told from a batch of one by
    nothing.
    """
    if isinstance(space, spaces.Discrete) and np.ndim(observation):
        shape = np.shape(observation)
        return spaces.MultiDiscrete(np.full(shape, space.n), start=np.full(shape, space.start))
    if isinstance(space, spaces.Dict):
        return spaces.Dict({key: as_given(part, observation[key]) for key, part in space.items()})
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple([*map(as_given, space, observation)])
    return space


def split(space: spaces.Space, observation: Any) -> list[Any] | None:
    """Return the observations in a batch, as a vector environment has it; None for a single one."""
    count = _count(space, observation)
    return None if count is None else [*iterate(batch_space(space, count), observation)]


def _count(space: spaces.Space, observation: Any) -> int | None:
    """Return how many observations are in a batch, by the first part of it; None: it is none."""
    if isinstance(space, spaces.Dict):
        for key, part in space.items():
            return _count(part, observation[key]) if key in observation else None
    if isinstance(space, spaces.Tuple):
        for part, first in zip(space, observation, strict=False):
            return _count(part, first)
    shape = np.shape(observation)
    return shape[0] if len(shape) == len(space.shape or ()) + 1 else None


def _check_fit(observation: Any, space: spaces.Space, place: str = "an observation") -> None:
    parts: dict[Any, spaces.Space] = {}
    if isinstance(space, spaces.Dict):
        parts, wanted = dict(space.spaces), f"a dict of {', '.join(space.spaces)}"
        fits = isinstance(observation, Mapping) and observation.keys() == parts.keys()
    elif isinstance(space, spaces.Tuple):
        parts, wanted = dict(enumerate(space.spaces)), f"{len(space.spaces)} parts"
        fits = isinstance(observation, Sequence) and len(observation) == len(parts)
    elif isinstance(space, spaces.Discrete):
        numbers = range(int(space.start), int(space.start + space.n))
        wanted = f"a number from {numbers[0]} to {numbers[-1]}"
        # Training takes an array of one, too.
        fits = np.size(observation) == 1 and np.asarray(observation).item() in numbers
    elif is_text(space):
        wanted, fits = "a text", isinstance(observation, str)
    else:
        wanted = f"an array of the shape {space.shape}"
        fits = np.shape(observation) == space.shape
    if not fits:
        shape = "" if isinstance(observation, Mapping) else f" of shape {np.shape(observation)}"
        raise ValueError(f"{place} must be {wanted}, not {type(observation).__name__}{shape}")
    for key, part in parts.items():
        _check_fit(observation[key], part, f"{place}[{key!r}]")
