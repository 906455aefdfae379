"""From a network's outputs to actions.

Action spaces are described by plain dicts with a "kind": `envs.spaces` makes them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from es.kernels.layers import choose, squash
from es.noise import FloatArray, action_noise

NoiseSeeds = tuple[int, int] | None


def count_outputs(actions: Mapping[str, Any]) -> int:
    """How many outputs a network needs to choose such actions."""
    if actions["kind"] == "discrete":
        return actions["n"]
    if actions["kind"] == "multi-discrete":
        return sum(actions["counts"])
    return math.prod(actions["shape"]) * (actions.get("bins") or 1)


class Decoder:
    """Makes the action out of the outputs; called with the index of the largest one.

    outputs: (outputs,), where the network leaves them in each step.
    """

    def __init__(self, actions: Mapping[str, Any], outputs: FloatArray) -> None:
        self.outputs = outputs

    def reset(self, noise_seeds: NoiseSeeds) -> None:
        """Starts an episode; the actions of some spaces may be noisy in it."""

    def __call__(self, largest: int) -> Any:
        """The action."""
        raise NotImplementedError


class Discrete(Decoder):
    """The largest output, counted from where the space does."""

    def __init__(self, actions: Mapping[str, Any], outputs: FloatArray) -> None:
        super().__init__(actions, outputs)
        self._start = actions["start"]

    def __call__(self, largest: int) -> int:
        """The action."""
        return self._start + largest


class MultiDiscrete(Decoder):
    """The largest output of each group."""

    def __init__(self, actions: Mapping[str, Any], outputs: FloatArray) -> None:
        super().__init__(actions, outputs)
        self._counts = np.array(actions["counts"], np.int64)
        self._start = np.array(actions["start"], np.int64)
        self._shape, self._dtype = actions["shape"], actions["dtype"]
        self._choices = np.empty_like(self._counts)

    def __call__(self, largest: int) -> np.ndarray:
        """The action: (*shape)."""
        choose(self.outputs, self._counts, self._choices)
        return (self._choices + self._start).reshape(self._shape).astype(self._dtype)


class MultiBinary(Decoder):
    """1 where an output is above 0."""

    def __init__(self, actions: Mapping[str, Any], outputs: FloatArray) -> None:
        super().__init__(actions, outputs)
        self._shape = actions["shape"]

    def __call__(self, largest: int) -> np.ndarray:
        """The action: (*shape)."""
        return (self.outputs > 0).reshape(self._shape).astype(np.int8)


class Box(Decoder):
    """Within bounds: tanh of the outputs or, in bins, one of so many values per dimension.

    Noise, where an episode has any, is added to that, and the sum clipped to the bounds.
    """

    def __init__(self, actions: Mapping[str, Any], outputs: FloatArray) -> None:
        super().__init__(actions, outputs)
        self._low = _within(actions["low"], np.inf)
        self._high = _within(actions["high"], -np.inf)
        self._std, self._noise = np.float32(actions["noise"]), None
        self._action = action = np.empty_like(self._low)
        self._fill: Callable[[], object] = partial(squash, outputs, self._low, self._high, action)
        shaped, dtype = action.reshape(actions["shape"]), np.dtype(actions["dtype"])
        as_it_is = dtype == action.dtype
        self._result: Callable[[], np.ndarray] = (
            shaped.copy if as_it_is else partial(shaped.astype, dtype)
        )
        if bins := actions["bins"]:
            self._values = np.linspace(self._low, self._high, bins, dtype=np.float32)
            self._counts = np.full(self._low.size, bins)
            self._choices = np.empty_like(self._counts)
            self._dimensions = np.arange(self._low.size)
            self._fill = self._choose

    def reset(self, noise_seeds: NoiseSeeds) -> None:
        """Starts an episode, with noise of its own."""
        noisy = self._std > 0 and noise_seeds is not None
        self._noise = action_noise(noise_seeds) if noisy else None  # type: ignore

    def __call__(self, largest: int) -> np.ndarray:
        """The action: (*shape), an array of its own."""
        self._fill()
        if self._noise is not None:
            action = self._action
            action += self._std * self._noise.standard_normal(action.size, dtype=np.float32)
            np.clip(action, self._low, self._high, out=action)
        return self._result()

    def _choose(self) -> None:
        choose(self.outputs, self._counts, self._choices)
        self._action[:] = self._values[self._choices, self._dimensions]


def _within(bounds: Sequence[float], inwards: float) -> FloatArray:
    """The bounds as float32, rounded inwards: those of a space may be doubles."""
    rounded = np.array(bounds, np.float32)
    outside = rounded < bounds if inwards > 0 else rounded > bounds
    return np.where(outside, np.nextafter(rounded, np.float32(inwards)), rounded)


DECODERS: dict[str, type[Decoder]] = {
    "discrete": Discrete, "multi-discrete": MultiDiscrete, "multi-binary": MultiBinary, "box": Box
}  # fmt: skip


def make_decoder(actions: Mapping[str, Any], outputs: FloatArray) -> Decoder:
    """What decodes the described actions."""
    return DECODERS[actions["kind"]](actions, outputs)
