"""Actions out of a network's outputs.

Plain dicts with a "kind", which `es.environments.spaces` makes, describe action spaces.
"""

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from es.kernels.layers import choose, squash
from es.noise import FloatArray, action_noise

NoiseSeeds = tuple[int, int] | None


def count_outputs(actions: Mapping[str, Any]) -> int:
    """Return how many outputs a network needs to choose the described actions."""
    if actions["kind"] == "discrete":
        return actions["n"]
    if actions["kind"] == "multi-discrete":
        return sum(actions["counts"])
    return math.prod(actions["shape"]) * (actions.get("bins") or 1)


def make_decoder(actions: Mapping[str, Any], outputs: FloatArray) -> Callable[[int], Any]:
    """Return a function that makes the described action, given the index of the largest output.

    outputs: (outputs,), which the network overwrites in each step.
    """
    if actions["kind"] == "discrete":
        return partial(operator.add, actions["start"])
    if actions["kind"] == "box":
        return Box(actions, outputs)
    shape = actions["shape"]
    if actions["kind"] == "multi-binary":
        return lambda _: (outputs > 0).reshape(shape).astype(np.int8)
    counts, start = (np.array(actions[name], np.int64) for name in ("counts", "start"))
    choices = np.empty_like(counts)

    def multi_discrete(_: int) -> np.ndarray:
        choose(outputs, counts, choices)
        return (choices + start).reshape(shape).astype(actions["dtype"])

    return multi_discrete


class Box:
    """Make actions within bounds: tanh of the outputs, or one of `bins` values per dimension.

    An episode's noise is added to that, and the sum clipped to the bounds.
    """

    def __init__(self, actions: Mapping[str, Any], outputs: FloatArray) -> None:
        self._low = _rounded_inwards(actions["low"], np.inf)
        self._high = _rounded_inwards(actions["high"], -np.inf)
        self._std = np.float32(actions["noise"])
        self._noise: np.random.Generator | None = None
        self._action = action = np.empty_like(self._low)
        self._fill: Callable[[], object] = partial(squash, outputs, self._low, self._high, action)
        shaped, dtype = action.reshape(actions["shape"]), np.dtype(actions["dtype"])
        self._result: Callable[[], np.ndarray] = (
            shaped.copy if dtype == action.dtype else partial(shaped.astype, dtype)
        )
        if bins := actions["bins"]:
            values = np.linspace(self._low, self._high, bins, dtype=np.float32)
            counts, dimensions = np.full(action.size, bins), np.arange(action.size)
            choices = np.empty_like(counts)

            def choose_values() -> None:
                choose(outputs, counts, choices)
                action[:] = values[choices, dimensions]

            self._fill = choose_values

    def reset(self, noise_seeds: NoiseSeeds) -> None:
        """Start an episode with its own noise."""
        noisy = self._std > 0 and noise_seeds is not None
        self._noise = action_noise(noise_seeds) if noisy else None  # type: ignore

    def __call__(self, largest: int) -> np.ndarray:
        """Return a new array: (*shape)."""
        self._fill()
        if self._noise is not None:
            action = self._action
            action += self._std * self._noise.standard_normal(action.size, dtype=np.float32)
            np.clip(action, self._low, self._high, out=action)
        return self._result()


def _rounded_inwards(bounds: Sequence[float], inwards: float) -> FloatArray:
    """Return bounds, which may be doubles, as float32 within them."""
    rounded = np.array(bounds, np.float32)
    outside = rounded < bounds if inwards > 0 else rounded > bounds
    return np.where(outside, np.nextafter(rounded, np.float32(inwards)), rounded)
