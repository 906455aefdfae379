"""The compiled actors, and decoders that make actions of a network's outputs."""

import math
from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from es.algorithm.noise import DoubleArray, FloatArray, action_noise, action_samples
from es.errors import MisfitError
from es.networks import clip_of, kernels, outputs_needed, split
from es.networks.kernels import CHANNELS, padded

NoiseSeeds = tuple[int, int] | None
SIZES = (42, 21, 11, 6, 3)  # of the image's sides, before and after each convolution
FEATURES = CHANNELS * SIZES[-1] ** 2
UNITS = 256
NO_BIAS = np.zeros(CHANNELS, np.float32)
VARIANCE_ADDED = 1e-5  # as in torch's batch normalisation


def aligned(*shape: int) -> FloatArray:
    """Return zeros that begin with a cache line, so that no vector lies in two."""
    size = math.prod(shape)
    padded = np.zeros(size + 15, np.float32)
    start = -padded.ctypes.data // 4 % 16
    return padded[start : start + size].reshape(shape)


def empty_statistics(inputs: int) -> DoubleArray:
    """Return the statistics that `kernels.normalize` takes, with means of 0 and factors of 1."""
    statistics = np.zeros((4, inputs))
    statistics[1] = 1
    return statistics


class MLPActor:
    """Play the MLP, one observation at a time.

    outputs: (outputs,), of the last observation.
    """

    def __init__(self, network: Mapping[str, Any]) -> None:
        self._inputs = network["inputs"]
        widths = (self._inputs, *network["hidden"], outputs_needed(network["actions"]))
        layers = [*pairwise(widths)]
        self._size = sum((inputs + 1) * outputs for inputs, outputs in layers)
        weights = aligned(sum((1 + padded(inputs)) * outputs for inputs, outputs in layers))
        scratch = aligned(sum(map(padded, widths[:-1])) + widths[-1])
        self.outputs = scratch[-widths[-1] :]
        plan = np.array([kernels.ACTIVATIONS.index(network["activation"]), *widths])
        self._pack: Callable[[FloatArray], None] = lambda theta: kernels.pack_mlp(
            theta, plan, weights
        )
        self._statistics: DoubleArray | None = None
        self._forward: Callable[[np.ndarray], Any] = partial(kernels.mlp, weights, plan, scratch)
        if network["normalize"]:
            self._statistics = empty_statistics(self._inputs)
            self._forward = partial(
                kernels.normalized_mlp, weights, plan, scratch, self._statistics, clip_of(network)
            )
        self._decode = make_decoder(network["actions"], self.outputs)
        # Most often the index of the largest output is the action, which saves a call.
        is_action = type(self._decode) is Discrete and not network["actions"]["start"]
        self._play = self._forward if is_action else self._forward_and_decode
        self._choose = self._play

    def bind(self, theta: FloatArray, statistics: DoubleArray | None = None) -> None:
        """Use theta: (P,) float32, and statistics: (2, inputs) for the observations."""
        assert theta.size == self._size
        self._pack(theta)
        if self._statistics is not None and statistics is not None:
            self._statistics[:2] = statistics

    def reset(self, seed: int | None = None, noise_seeds: NoiseSeeds = None) -> None:
        """Start the episode of a seed. noise_seeds: for noise on its actions."""
        self._decode.reset(seed, noise_seeds)
        if self._statistics is not None:
            self._statistics[2:] = 0

    def act(self, observation: np.ndarray) -> Any:
        """Return the action for an observation: (inputs,); raise MisfitError."""
        try:
            return self._choose(observation)
        except (TypeError, ValueError):  # integers, a list, read-only, not contiguous, misfit ...
            return self._adapt(observation)

    def observed(self) -> DoubleArray | None:
        """Return sums of the deviations since the reset and of their squares: (2, inputs)."""
        return None if self._statistics is None else self._statistics[2:].copy()

    def _forward_and_decode(self, observation: np.ndarray) -> Any:
        return self._decode(self._forward(observation))

    def _adapt(self, observation: Any) -> Any:
        """Convert this observation, and all that follow."""
        try:
            array = np.asarray(observation)
        except ValueError:
            array = np.empty(0, object)  # a list of lists of different lengths
        if array.shape != (self._inputs,) or array.dtype.kind not in "biuf":
            raise MisfitError(
                f"its observation has the shape {array.shape} and the type {array.dtype}, and "
                f"should hold {self._inputs} numbers",
                steps_ago=1,
            )
        self._choose = self._convert
        return self._choose(observation)

    def _convert(self, observation: Any) -> Any:
        # Unlike np.copyto, this neither repeats a single number nor reads text.
        return self._play(np.asarray(observation).astype(np.float64, "C", "same_kind"))


class ConvLSTMActor:
    """Play the Convnet-LSTM, one observation at a time.

    vbn_batch: (N, 1, 42, 42) float32, for virtual batch normalisation. outputs: (outputs,), of the
    last observation.
    """

    def __init__(self, network: Mapping[str, Any], vbn_batch: FloatArray | None = None) -> None:
        if network["vbn"] and vbn_batch is None:
            raise ValueError("virtual batch normalisation without its batch")
        self._network, self._vbn_batch = network, vbn_batch if network["vbn"] else None
        self._convolutions = [
            aligned(1 + 9 * inputs, CHANNELS) for inputs in (1, CHANNELS, CHANNELS, CHANNELS)
        ]
        self._framed = aligned(SIZES[0] + 2, SIZES[0] + 2)
        self._images = [aligned((size + 2) ** 2 * CHANNELS) for size in SIZES[1:]]
        self._lstm = aligned(1 + FEATURES + UNITS, 4 * UNITS)
        self._x = aligned(FEATURES + UNITS)
        last = self._images[-1].reshape(SIZES[-1] + 2, SIZES[-1] + 2, CHANNELS)
        self._last = last[1:-1, 1:-1].transpose(2, 0, 1)
        self._features = self._x[:FEATURES].reshape(self._last.shape)
        self._hidden = self._x[FEATURES:]
        self._cell, self._gates = aligned(UNITS), aligned(4 * UNITS)
        self._head = aligned(1 + UNITS, outputs_needed(network["actions"]))
        self.outputs = aligned(outputs_needed(network["actions"]))
        self._decode = make_decoder(network["actions"], self.outputs)

    def bind(self, theta: FloatArray, statistics: DoubleArray | None = None) -> None:
        """Use theta: (P,) float32; images have no statistics."""
        parts = split(self._network, theta)
        batch = self._vbn_batch  # then the images that each layer takes
        for layer, weights in enumerate(self._convolutions):
            name = f"conv{layer + 1}"
            matrix = parts[f"{name}.weight"].transpose(0, 2, 3, 1).reshape(CHANNELS, -1)
            kernels.pack(matrix, parts.get(f"{name}.bias", NO_BIAS), weights)
            if batch is not None:
                self._normalize(layer, batch, parts)
                if layer < len(self._convolutions) - 1:
                    batch = np.stack([self._activate(layer, image).copy() for image in batch])
        # First the hidden state's matrix, whose row of biases the features' last row replaces.
        bias = parts["lstm.bias_ih"] + parts["lstm.bias_hh"]
        kernels.pack(parts["lstm.weight_hh"], bias, self._lstm[FEATURES:])
        kernels.pack(parts["lstm.weight_ih"], bias, self._lstm)
        kernels.pack(parts["actor_linear.weight"], parts["actor_linear.bias"], self._head)

    def reset(self, seed: int | None = None, noise_seeds: NoiseSeeds = None) -> None:
        """Start the episode of a seed. noise_seeds: for noise on its actions."""
        self._hidden[:] = 0
        self._cell[:] = 0
        self._decode.reset(seed, noise_seeds)

    def act(self, observation: np.ndarray) -> Any:
        """Return the action for an observation: (1, 42, 42) float32."""
        image = observation
        for layer in range(len(self._images)):
            image = self._activate(layer, image)
        self._features[:] = self._last
        kernels.lstm_cell(self._lstm, self._x, self._cell, self._gates)
        return self._decode(kernels.dense_argmax(self._head, self._hidden, self.outputs))

    def observed(self) -> DoubleArray | None:
        """Return None: images are normalised by their own running averages."""
        return None

    def _convolve(self, layer: int, image: np.ndarray) -> FloatArray:
        """Return the result of a convolution, before its activation, until the next call."""
        result = self._images[layer]
        if layer == 0:
            self._framed[1:-1, 1:-1] = image[0]
            kernels.convolve_gray(self._convolutions[0], self._framed, result)
        else:
            kernels.convolve(self._convolutions[layer], image, SIZES[layer], result)
        return result

    def _activate(self, layer: int, image: np.ndarray) -> FloatArray:
        """Return the result of a convolution and its activation, until the next call."""
        result = self._convolve(layer, image)
        kernels.selu(result)
        return result

    def _normalize(self, layer: int, batch: FloatArray, parts: Mapping[str, FloatArray]) -> None:
        """Fold virtual batch normalisation by a batch of inputs into a convolution's weights."""
        sums = np.zeros((2, CHANNELS))
        for image in batch:
            kernels.add_moments(self._convolve(layer, image), SIZES[layer + 1], sums)
        mean, squares = sums / (len(batch) * SIZES[layer + 1] ** 2)
        scale, shift = parts[f"norm{layer + 1}.weight"], parts[f"norm{layer + 1}.bias"]
        factor = scale / np.sqrt(squares - mean**2 + VARIANCE_ADDED)
        self._convolutions[layer][:] *= factor.astype(np.float32)
        self._convolutions[layer][0] = shift - mean * factor


class Decoder:
    """Make the described action of outputs: (outputs,), which the network overwrites in each step.

    It is called with the index of the largest output, after a reset before each episode.
    """

    def __init__(self, actions: Mapping[str, Any], outputs: FloatArray) -> None:
        self._actions, self._outputs = actions, outputs

    def reset(self, seed: int | None = None, noise_seeds: NoiseSeeds = None) -> None:
        """Start an episode. seed: of drawn actions. noise_seeds: of the noise on actions."""

    def __call__(self, largest: int) -> Any:
        """Return a new action."""
        raise NotImplementedError


class Discrete(Decoder):
    """The largest output's action."""

    def __call__(self, largest: int) -> int:
        """Return the action."""
        return largest + self._actions["start"]


class MultiBinary(Decoder):
    """The outputs' signs."""

    def __call__(self, largest: int) -> np.ndarray:
        """Return an array: (*shape)."""
        return (self._outputs > 0).reshape(self._actions["shape"]).astype(np.int8)


class MultiDiscrete(Decoder):
    """The largest output of each group."""

    def __init__(self, actions: Mapping[str, Any], outputs: FloatArray) -> None:
        super().__init__(actions, outputs)
        self._counts = np.array(actions["counts"], np.int64)
        self._start = np.array(actions["start"], np.int64)
        self._choices = np.empty_like(self._counts)

    def __call__(self, largest: int) -> np.ndarray:
        """Return an array: (*shape)."""
        kernels.choose(self._outputs, self._counts, self._choices)
        choices = self._choices + self._start
        return choices.reshape(self._actions["shape"]).astype(self._actions["dtype"])


class Sampler(Decoder):
    """Draw discrete actions with the probabilities of the softmax of each group of outputs.

    By the Gumbel-max trick (Maddison et al. 2014): the largest of the outputs plus Gumbel noise.
    """

    def __init__(self, actions: Mapping[str, Any], outputs: FloatArray) -> None:
        super().__init__(actions, outputs)
        self._perturbed = np.empty_like(outputs)
        self._decode = make_decoder({**actions, "sample": False}, self._perturbed)
        self.reset()

    def reset(self, seed: int | None = None, noise_seeds: NoiseSeeds = None) -> None:
        """Start an episode, whose seed decides what is drawn; None: at random."""
        self._draw = action_samples(seed).gumbel

    def __call__(self, largest: int) -> Any:
        """Return an action."""
        self._perturbed[:] = self._outputs + self._draw(size=self._outputs.size)
        return self._decode(int(self._perturbed.argmax()))


class Box(Decoder):
    """Actions within bounds: tanh of the outputs, or these clipped, or one of `bins` values.

    An episode's noise is added to that, and the sum clipped to the bounds. Integers are rounded to.
    """

    def __init__(self, actions: Mapping[str, Any], outputs: FloatArray) -> None:
        super().__init__(actions, outputs)
        self._low, self._high = bounds_within(actions)
        self._noise: np.random.Generator | None = None
        self._action = np.empty_like(self._low)
        fill = kernels.clip if actions["squash"] == "clip" else kernels.squash
        self._fill: Callable[[], object] = partial(
            fill, outputs, self._low, self._high, self._action
        )
        if bins := actions["bins"]:
            self._fill = self._choose_values
            self._values = np.linspace(self._low, self._high, bins, dtype=np.float32)
            self._dimensions = np.arange(self._action.size)
            self._counts = np.full_like(self._dimensions, bins)
            self._choices = np.empty_like(self._dimensions)
        shaped, dtype = self._action.reshape(actions["shape"]), np.dtype(actions["dtype"])
        self._result: Callable[[], np.ndarray] = (
            shaped.copy if dtype == np.float32 else partial(shaped.astype, dtype)
        )
        if dtype.kind in "iub":
            self._result = lambda: np.rint(shaped).astype(dtype)

    def reset(self, seed: int | None = None, noise_seeds: NoiseSeeds = None) -> None:
        """Start an episode with its own noise."""
        self._noise = None
        if self._actions["noise"] > 0 and noise_seeds is not None:
            self._noise = action_noise(noise_seeds)

    def __call__(self, largest: int) -> np.ndarray:
        """Return a new array: (*shape)."""
        self._fill()
        if self._noise is not None:
            action, std = self._action, np.float32(self._actions["noise"])
            action += std * self._noise.standard_normal(action.size, dtype=np.float32)
            np.clip(action, self._low, self._high, out=action)
        return self._result()

    def _choose_values(self) -> None:
        kernels.choose(self._outputs, self._counts, self._choices)
        self._action[:] = self._values[self._choices, self._dimensions]


def make_decoder(actions: Mapping[str, Any], outputs: FloatArray) -> Decoder:
    """Return the decoder of the described actions. outputs: (outputs,)."""
    if actions.get("sample"):
        return Sampler(actions, outputs)
    decoders: dict[str, type[Decoder]] = {
        "discrete": Discrete,
        "multi-discrete": MultiDiscrete,
        "multi-binary": MultiBinary,
        "box": Box,
    }
    return decoders[actions["kind"]](actions, outputs)


def bounds_within(actions: Mapping[str, Any]) -> tuple[FloatArray, FloatArray]:
    """Return the lower and upper bounds, which may be doubles, as float32 within them."""
    low, high = (np.array(actions[name], np.float32) for name in ("low", "high"))
    # NumPy compares with the doubles.
    return (
        np.where(low < actions["low"], np.nextafter(low, np.float32(np.inf)), low),
        np.where(high > actions["high"], np.nextafter(high, np.float32(-np.inf)), high),
    )
