"""The compiled actors, and decoders that make actions of a network's outputs."""

import math
from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from es.algorithm.noise import DoubleArray, FloatArray, action_noise, action_samples
from es.environments.spaces import as_numbers
from es.networks import clip_of, kernels, outputs_needed, split
from es.networks.kernels import CHANNELS, padded

NoiseSeeds = tuple[int, int] | None
SIZES = (42, 21, 11, 6, 3)  # of the image's sides, before and after each convolution
FEATURES = CHANNELS * SIZES[-1] ** 2
UNITS = 256
NO_BIAS = np.zeros(CHANNELS, np.float32)
VARIANCE_ADDED = 1e-5  # as in torch's batch normalisation


def aligned(*shape: int) -> FloatArray:
    """Return zeros aligned to a cache line, so that no vector spans two."""
    size = math.prod(shape)
    longer = np.zeros(size + 15, np.float32)
    start = -longer.ctypes.data // 4 % 16
    return longer[start : start + size].reshape(shape)


class NetworkActor:
    """What the actors of all networks do alike: normalise observations, and make actions.

    outputs: (outputs,), of the last observation.
    """

    def __init__(self, network: Mapping[str, Any], outputs: FloatArray | None = None) -> None:
        self._network = network
        self.outputs = aligned(outputs_needed(network["actions"])) if outputs is None else outputs
        self._decoder = Decoder(network["actions"], self.outputs)
        self._decode = self._decoder.decode
        self._statistics: DoubleArray | None = None
        if network.get("normalize"):
            self._statistics = np.zeros((4, network["inputs"]))  # see `kernels.normalize`
            self._statistics[1] = 1

    def load(self, theta: FloatArray) -> None:
        """Use theta: (P,) float32."""
        raise NotImplementedError

    def bind(self, theta: FloatArray, statistics: DoubleArray | None = None) -> None:
        """Use theta: (P,) float32, and statistics: (2, inputs) for the observations."""
        self.load(theta)
        if self._statistics is not None and statistics is not None:
            self._statistics[:2] = statistics

    def reset(self, seed: int | None = None, noise_seeds: NoiseSeeds = None) -> None:
        """Start the episode of a seed. noise_seeds: for noise on its actions."""
        self._decoder.reset(seed, noise_seeds)
        if self._statistics is not None:
            self._statistics[2:] = 0

    def observed(self) -> DoubleArray | None:
        """Return sums of the deviations since the reset and of their squares: (2, inputs).

        None if observations are not normalised, or images, which have running averages.
        """
        return None if self._statistics is None else self._statistics[2:].copy()


class MLPActor(NetworkActor):
    """Play the MLP, one observation at a time: (inputs,)."""

    def __init__(self, network: Mapping[str, Any]) -> None:
        widths = (network["inputs"], *network["hidden"], outputs_needed(network["actions"]))
        layers = [*pairwise(widths)]
        self._size = sum((inputs + 1) * outputs for inputs, outputs in layers)
        weights = aligned(sum((1 + padded(inputs)) * outputs for inputs, outputs in layers))
        scratch = aligned(sum(map(padded, widths[:-1])) + widths[-1])
        super().__init__(network, scratch[-widths[-1] :])
        plan = np.array([kernels.ACTIVATIONS.index(network["activation"]), *widths])
        self._plan, self._weights = plan, weights
        self._forward: Callable[[np.ndarray], Any] = partial(kernels.mlp, weights, plan, scratch)
        if self._statistics is not None:
            self._forward = partial(
                kernels.normalized_mlp, weights, plan, scratch, self._statistics, clip_of(network)
            )
        # Most often the index of the largest output is the action, which saves a call.
        decodes = not self._decoder.takes_largest
        self._play = self._forward_and_decode if decodes else self._forward
        self._choose = self._play

    def load(self, theta: FloatArray) -> None:
        """Use theta: (P,) float32."""
        assert theta.size == self._size
        kernels.pack_mlp(theta, self._plan, self._weights)

    def act(self, observation: np.ndarray) -> Any:
        """Return the action for an observation; raise MisfitError if it does not fit."""
        try:
            return self._choose(observation)
        except (TypeError, ValueError):  # integers, a list, read-only, not contiguous, misfit ...
            self._choose = self._convert  # for all that follow, too
            return self._convert(observation)

    def _forward_and_decode(self, observation: np.ndarray) -> Any:
        return self._decode(self._forward(observation))

    def _convert(self, observation: Any) -> Any:
        return self._play(as_numbers(observation, (self._network["inputs"],)))


class ConvLSTMActor(NetworkActor):
    """Play the Convnet-LSTM, one observation at a time: (1, 42, 42) float32.

    vbn_batch: (N, 1, 42, 42) float32, for virtual batch normalisation.
    """

    def __init__(self, network: Mapping[str, Any], vbn_batch: FloatArray | None = None) -> None:
        super().__init__(network)
        assert not network["vbn"] or vbn_batch is not None
        self._vbn_batch = vbn_batch
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

    def load(self, theta: FloatArray) -> None:
        """Use theta: (P,) float32."""
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
        super().reset(seed, noise_seeds)
        self._hidden[:] = 0
        self._cell[:] = 0

    def act(self, observation: np.ndarray) -> Any:
        """Return the action for an observation."""
        image = observation
        for layer in range(len(self._images)):
            image = self._activate(layer, image)
        self._features[:] = self._last
        kernels.lstm_cell(self._lstm, self._x, self._cell, self._gates)
        kernels.dense(self._head, self._hidden, self.outputs)
        return self._decode(int(self.outputs.argmax()))

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

    A discrete action is the index of the largest output, in each group of outputs if there are
    several. A binary action is 1 where the output is positive. With "sample", discrete actions are
    drawn from the softmax by the Gumbel-max trick (Maddison et al. 2014): take the largest of the
    outputs plus Gumbel noise.

    Actions in a box are tanh of the outputs, scaled to the bounds, or the outputs clipped to them,
    or one of "bins" values in each dimension. An episode's noise is added, and the sum is clipped
    to the bounds. Actions of an integer type are rounded.

    decode: called with the index of the largest output; returns a new action.
    """

    def __init__(self, actions: Mapping[str, Any], outputs: FloatArray) -> None:
        self._actions, self._outputs = actions, outputs
        self._shape, self._dtype = actions.get("shape", ()), np.dtype(actions.get("dtype", np.int8))
        self._scores = np.empty_like(outputs) if actions.get("sample") else outputs
        self._start = actions.get("start", 0)
        self._of_largest: Callable[[int], Any] = {
            "discrete": self._discrete,
            "multi-discrete": self._multi_discrete,
            "multi-binary": self._multi_binary,
            "box": self._box,
        }[actions["kind"]]
        self.decode: Callable[[int], Any] = (
            self._of_largest if self._scores is outputs else self._sample
        )
        counts = actions.get("counts", ())
        if actions["kind"] == "box":
            low, high = bounds_within(actions)
            self._action = np.empty_like(low)
            shaped = self._action.reshape(self._shape)
            self._result: Callable[[], np.ndarray] = partial(shaped.astype, self._dtype)
            if self._dtype == np.float32:
                self._result = shaped.copy
            elif self._dtype.kind != "f":
                self._result = lambda: np.rint(shaped).astype(self._dtype)
            self._bounds = low, high
            squash = kernels.clip if actions["squash"] == "clip" else kernels.squash
            self._fill: Callable[[], Any] = partial(squash, outputs, low, high, self._action)
            if bins := actions["bins"]:
                self._fill = self._fill_with_bins
                self._values = np.linspace(low, high, bins, dtype=np.float32)
                self._dimensions = np.arange(low.size)
                counts = [bins] * low.size
        self._counts = np.array(counts, np.int64)
        self._choices = np.empty_like(self._counts)
        self.reset()

    @property
    def takes_largest(self) -> bool:
        """Return whether the action is the index of the largest output itself."""
        return self.decode == self._discrete and not self._start

    def reset(self, seed: int | None = None, noise_seeds: NoiseSeeds = None) -> None:
        """Start an episode. seed: of drawn actions; None: at random. noise_seeds: of the noise."""
        if self.decode == self._sample:
            self._draw = action_samples(seed).gumbel
        self._noise: np.random.Generator | None = None
        if self._actions.get("noise") and noise_seeds is not None:
            self._noise = action_noise(noise_seeds)

    def _sample(self, largest: int) -> Any:
        self._scores[:] = self._outputs + self._draw(size=self._outputs.size)
        return self._of_largest(int(self._scores.argmax()))

    def _discrete(self, largest: int) -> int:
        return largest + self._start

    def _multi_discrete(self, largest: int) -> np.ndarray:
        kernels.choose(self._scores, self._counts, self._choices)
        return (self._choices + self._start).reshape(self._shape).astype(self._dtype)

    def _multi_binary(self, largest: int) -> np.ndarray:
        return (self._outputs > 0).reshape(self._shape).astype(self._dtype)

    def _box(self, largest: int) -> np.ndarray:
        self._fill()
        if self._noise:
            action, std = self._action, np.float32(self._actions["noise"])
            action += std * self._noise.standard_normal(action.size, dtype=np.float32)
            np.clip(action, *self._bounds, out=action)
        return self._result()

    def _fill_with_bins(self) -> None:
        kernels.choose(self._outputs, self._counts, self._choices)
        self._action[:] = self._values[self._choices, self._dimensions]


def bounds_within(actions: Mapping[str, Any]) -> tuple[FloatArray, FloatArray]:
    """Return the lower and upper bounds as float32; doubles are rounded inwards."""
    low, high = (np.array(actions[name], np.float32) for name in ("low", "high"))
    # NumPy compares with the doubles.
    return (
        np.where(low < actions["low"], np.nextafter(low, np.float32(np.inf)), low),
        np.where(high > actions["high"], np.nextafter(high, np.float32(-np.inf)), high),
    )
