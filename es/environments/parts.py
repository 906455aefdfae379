"""Observations that are Dicts, for a network of the user's own, which sees their entries apart."""

from collections.abc import Callable, Mapping
from functools import partial
from operator import itemgetter
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import TransformObservation

from es.environments.spaces import is_image, texts, without_text


class PartsView:
    """Turn each entry of an environment's Dicts, but texts, into what the network sees of it.

    Pictures are preprocessed, arrays stay as they are, all others are flattened. space: a Dict of
    Boxes, which describes the result.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        self._see: dict[str, Callable[[Any], Any]] = {}
        self._resets: list[Callable[[], None]] = []
        seen: dict[str, spaces.Space] = {}
        entries: Any = without_text(env.observation_space)
        for key, part in entries.items():
            self._see[key], seen[key] = np.asarray, part
            if is_image(part):
                from es.environments.images import OBSERVATIONS  # these load kernels
                from es.environments.screens import image_view

                view = image_view(TransformObservation(env, itemgetter(key), part))
                self._see[key], seen[key] = view, OBSERVATIONS
                self._resets.append(view.reset)
            elif not isinstance(part, spaces.Box):
                self._see[key], seen[key] = (
                    partial(spaces.flatten, part),
                    spaces.flatten_space(part),
                )
        self.space = spaces.Dict(seen)

    def reset(self) -> None:
        """Start an episode."""
        for reset in self._resets:
            reset()

    def __call__(self, observation: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Return the entries, valid until the next call."""
        return {key: see(observation[key]) for key, see in self._see.items()}


class AsParts(gymnasium.ObservationWrapper):
    """See Dicts as `PartsView` does. es_unseen: the Text entries left out."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self._view = PartsView(env)
        self.observation_space = self._view.space
        self.es_unseen = [*texts(env.observation_space)]

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        self._view.reset()
        return super().reset(**kwargs)

    def observation(self, observation: Any) -> dict[str, np.ndarray]:
        """Return the entries as the network sees them."""
        return self._view(observation)
