"""An exported file, played in place of the policy that it was made of, and compared with it."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from es.algorithm.noise import DoubleArray, FloatArray
from es.environments.spaces import Preprocessor
from es.exporting.files import Play

TOLERANCE = 0.01  # of the range of a continuous action, since sums are rounded in another order
TIES = 0.01  # the share of steps in which that rounding may choose another action


class Beside:
    """Play a file, and count in how many steps the policy's own actor acts otherwise: an actor.

    see: shows the actor the observations of the bare environment, which the file is given. example:
    an observation as the file takes it. initial_state: as `ExportedPolicy` has it. actions: their
    description.
    """

    def __init__(
        self, play: Play, actor: Any, see: Preprocessor, example: Any, initial_state: Tensor,
        actions: Mapping[str, Any],
    ) -> None:  # fmt: skip
        self._play, self._actor, self._example = play, actor, example
        self._see = see
        self._initial_state = initial_state
        self._tolerance: Any = 0
        if actions["kind"] == "box":
            spans = np.subtract(actions["high"], actions["low"])
            self._tolerance = TOLERANCE * spans.reshape(actions["shape"])
        self.steps = self.different = 0

    def bind(self, theta: FloatArray, statistics: DoubleArray | None = None) -> None:
        """Give the policy's actor its parameters, which the file has."""
        self._actor.bind(theta, statistics)

    def reset(self, seed: int | None = None, noise_seeds: tuple[int, int] | None = None) -> None:
        """Begin an episode."""
        self._actor.reset(seed, noise_seeds)
        self._see.reset()
        self._state = self._initial_state.clone()  # a network may change it in place

    def act(self, observation: Any) -> Any:
        """Return the file's action."""
        action, self._state = self._play(_like(self._example, observation), self._state)
        expected = self._actor.act(self._see(observation))
        self.steps += 1
        # What is no number is no action of the policy.
        self.different += not (abs(action.astype(float) - expected) <= self._tolerance).all()
        return action[()]

    def observed(self) -> None:
        """Return nothing: a score needs no statistics."""

    def complaint(self) -> str:
        """Return in how many steps the actions differed, or "" if rounding explains it."""
        if self.different <= TIES * self.steps:
            return ""
        return f"in {self.different} of {self.steps} steps"


def _like(example: Any, observation: Any) -> Any:
    """Return an observation as tensors of the types of an example, and without what that lacks."""
    if isinstance(example, dict):
        return {key: _like(part, observation[key]) for key, part in example.items()}
    if isinstance(example, tuple):
        return tuple(map(_like, example, observation))
    return torch.from_numpy(np.array(observation, example.numpy().dtype))
