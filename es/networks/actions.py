"""Actions out of a network's outputs.

Plain dicts with a "kind", which `es.environments.spaces` makes, describe action spaces.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from es.kernels.layers import choose, clip, squash
from es.noise import FloatArray, action_noise, action_samples

NoiseSeeds = tuple[int, int] | None
Integers = npt.NDArray[np.int64]


def make_decoder(actions: Mapping[str, Any], outputs: FloatArray) -> Callable[[int], Any]:
    """Return a function that makes the described action, given the index of the largest output.

    outputs: (outputs,), which the network overwrites in each step. A decoder that is a `Box` or
    `Sampler` is to be reset before each episode.
    """
    kind, sampled = actions["kind"], actions.get("sample")
    if kind == "box":
        return Box(actions, outputs)
    if kind == "multi-binary":
        return lambda _: (outputs > 0).reshape(actions["shape"]).astype(np.int8)
    if kind == "discrete" and not sampled:
        return partial(operator.add, actions["start"])
    start = np.array(actions["start"], np.int64)
    counts = np.array([actions["n"]] if kind == "discrete" else actions["counts"], np.int64)
    choices = np.empty_like(counts)

    def action() -> Any:
        if kind == "discrete":
            return int(choices[0] + start)
        return (choices + start).reshape(actions["shape"]).astype(actions["dtype"])

    if sampled:
        return Sampler(outputs, counts, choices, action)

    def multi_discrete(_: int) -> np.ndarray:
        choose(outputs, counts, choices)
        return action()

    return multi_discrete


class Sampler:
    """Draw each choice with the probabilities of the softmax of its outputs.

    outputs: (outputs,). counts: how many of them belong to each choice. choices: like counts, in
    which `action` finds what was drawn.
    """

    def __init__(
        self, outputs: FloatArray, counts: Integers, choices: Integers, action: Callable[[], Any]
    ) -> None:
        self._outputs, self._counts, self._choices, self._action = outputs, counts, choices, action
        self.reset(None, None)

    def reset(self, seed: int | None, noise_seeds: NoiseSeeds) -> None:
        """Start an episode, whose seed decides what is drawn; None: at random."""
        self._draw = action_samples(seed).standard_exponential

    def __call__(self, largest: int) -> Any:
        """Return an action."""
        # The Gumbel-max trick, as -log of an exponential number is a Gumbel one (Maddison et al.
        # 2014); rounded, since the last digit of a logarithm depends on the processor.
        perturbed = self._outputs - np.log(self._draw(self._outputs.size))
        choose(perturbed.astype(np.float32), self._counts, self._choices)
        return self._action()


class Box:
    """Make actions within bounds: tanh of the outputs, or these clipped, or one of `bins` values.

    An episode's noise is added to that, and the sum clipped to the bounds. Integers are rounded to.
    """

    def __init__(self, actions: Mapping[str, Any], outputs: FloatArray) -> None:
        self._low = rounded_inwards(actions["low"], np.inf)
        self._high = rounded_inwards(actions["high"], -np.inf)
        self._std = np.float32(actions["noise"])
        self._noise: np.random.Generator | None = None
        self._action = action = np.empty_like(self._low)
        fill = clip if actions["squash"] == "clip" else squash
        self._fill: Callable[[], object] = partial(fill, outputs, self._low, self._high, action)
        shaped, dtype = action.reshape(actions["shape"]), np.dtype(actions["dtype"])
        self._result: Callable[[], np.ndarray] = (
            shaped.copy if dtype == action.dtype else partial(shaped.astype, dtype)
        )
        if dtype.kind in "iub":
            self._result = lambda: np.rint(shaped).astype(dtype)
        if bins := actions["bins"]:
            values = np.linspace(self._low, self._high, bins, dtype=np.float32)
            counts, dimensions = np.full(action.size, bins), np.arange(action.size)
            choices = np.empty_like(counts)

            def choose_values() -> None:
                choose(outputs, counts, choices)
                action[:] = values[choices, dimensions]

            self._fill = choose_values

    def reset(self, seed: int | None, noise_seeds: NoiseSeeds) -> None:
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


def rounded_inwards(bounds: Sequence[float], inwards: float) -> FloatArray:
    """Return bounds, which may be doubles, as float32 within them."""
    rounded = np.array(bounds, np.float32)
    outside = rounded < bounds if inwards > 0 else rounded > bounds
    return np.where(outside, np.nextafter(rounded, np.float32(inwards)), rounded)
