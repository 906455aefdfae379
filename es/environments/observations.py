"""What a policy sees of the observations of an environment as Gymnasium makes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from es.environments.atari import is_bare
from es.environments.images import ImageView, image_view
from es.environments.screens import ScreenView
from es.environments.spaces import is_image, is_vector


class View:
    """Make of an environment's observations what the network is given.

    bare: the environment as `es.envs.make_bare_env` makes it.
    """

    def __init__(self, bare: gymnasium.Env) -> None:
        self._space = space = bare.observation_space
        self._is_vector = is_vector(space)
        self._images: ScreenView | ImageView | None = None
        if is_image(space):
            self._images = ScreenView() if is_bare(bare) else image_view(bare)

    def reset(self) -> None:
        """Starts an episode."""
        if self._images:
            self._images.reset()

    def __call__(self, observation: Any) -> np.ndarray:
        """An image or a vector, valid until the next call; raises ValueError for another shape."""
        require_fit(observation, self._space)
        if self._images:
            return self._images(np.asarray(observation))
        if self._is_vector:
            return np.asarray(observation)
        return np.asarray(spaces.flatten(self._space, observation))


def require_fit(observation: Any, space: spaces.Space, place: str = "an observation") -> None:
    """Raises ValueError where an observation does not have the shape of its space."""
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
        fits = np.shape(observation) == () and observation in numbers
    else:
        wanted = f"an array of the shape {space.shape}"
        fits = np.shape(observation) == space.shape
    if not fits:
        shape = "" if isinstance(observation, Mapping) else f" of shape {np.shape(observation)}"
        raise ValueError(f"{place} must be {wanted}, not {type(observation).__name__}{shape}")
    for key, part in parts.items():
        require_fit(observation[key], part, f"{place}[{key!r}]")
