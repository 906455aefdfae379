"""The compiled actor that plays `es.model.MLP`."""

from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from es.kernels.layers import ACTIVATIONS, mlp, normalized_mlp
from es.kernels.packing import aligned, pack_dense, packed_size, whole_panels
from es.networks.actions import Box, NoiseSeeds, count_outputs, make_decoder
from es.noise import DoubleArray, FloatArray


class MLPActor:
    """Play the MLP, one observation at a time: the best action, without sampling.

    outputs: (outputs,), of the last observation.
    """

    def __init__(self, network: Mapping[str, Any]) -> None:
        inputs, outputs = network["inputs"], count_outputs(network["actions"])
        widths = (inputs, *network["hidden"], outputs)
        self._layers = list(pairwise(widths))
        self._size = sum((inputs + 1) * outputs for inputs, outputs in self._layers)
        sizes = [packed_size(*layer) for layer in self._layers]
        packed = aligned(sum(sizes))
        self._packed = np.split(packed, np.cumsum(sizes[:-1]))
        scratch = aligned(sum(whole_panels(width) for width in widths))
        self.outputs = scratch[-whole_panels(outputs) :][:outputs]
        arguments = packed, np.array([ACTIVATIONS.index(network["activation"]), *widths]), scratch
        self._statistics: DoubleArray | None = None
        self._forward: Callable[[np.ndarray], Any] = partial(mlp, *arguments)
        if network["normalize"]:
            self._statistics = np.zeros((4, inputs))
            self._statistics[1] = 1
            self._forward = partial(normalized_mlp, *arguments, self._statistics.reshape(-1))
        self._input = np.empty(inputs)
        actions = network["actions"]
        self._decode = make_decoder(actions, self.outputs)
        # Most often the index of the largest output is the action, which saves a call.
        is_action = actions["kind"] == "discrete" and actions["start"] == 0
        self._choose = self._forward if is_action else self._forward_and_decode

    def bind(self, theta: FloatArray, statistics: DoubleArray | None = None) -> None:
        """Use theta: (P,) float32, and statistics: (2, inputs) for the observations."""
        assert theta.size == self._size
        start = 0
        for (inputs, outputs), packed in zip(self._layers, self._packed, strict=True):
            middle, stop = start + inputs * outputs, start + (inputs + 1) * outputs
            pack_dense(theta[start:middle], theta[middle:stop], inputs, outputs, packed)
            start = stop
        if self._statistics is not None and statistics is not None:
            self._statistics[:2] = statistics

    def reset(self, noise_seeds: NoiseSeeds = None) -> None:
        """Start an episode. noise_seeds: for noise on its actions."""
        if isinstance(self._decode, Box):
            self._decode.reset(noise_seeds)
        if self._statistics is not None:
            self._statistics[2:] = 0

    def act(self, observation: np.ndarray) -> Any:
        """Return the best action for an observation: (inputs,)."""
        try:
            return self._choose(observation)
        except TypeError:  # neither float32 nor float64, not contiguous, read-only, no array ...
            self._choose = partial(self._convert_and, self._choose)
            return self._choose(observation)

    def observed(self) -> DoubleArray | None:
        """Return sums of the deviations since the reset and of their squares: (2, inputs)."""
        return None if self._statistics is None else self._statistics[2:].copy()

    def _forward_and_decode(self, observation: np.ndarray) -> Any:
        return self._decode(self._forward(observation))

    def _convert_and(self, choose: Callable[[np.ndarray], Any], observation: np.ndarray) -> Any:
        np.copyto(self._input, observation, casting="unsafe")
        return choose(self._input)
