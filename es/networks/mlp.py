"""The compiled actor that plays `es.model.MLP`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from es.kernels.layers import ACTIVATIONS, mlp, normalized_mlp
from es.kernels.packing import aligned, pack_dense, packed_size, whole_panels
from es.networks.actions import NoiseSeeds, count_outputs, make_decoder
from es.noise import DoubleArray, FloatArray


class MLPActor:
    """Plays the MLP, one observation at a time: the best action, without drawing lots."""

    def __init__(self, network: Mapping[str, Any]) -> None:
        inputs, outputs = network["inputs"], count_outputs(network["actions"])
        widths = (inputs, *network["hidden"], outputs)
        self._layers = list(pairwise(widths))
        self._size = sum((inputs + 1) * outputs for inputs, outputs in self._layers)
        sizes = [packed_size(*layer) for layer in self._layers]
        packed = aligned(sum(sizes))
        self._packed = np.split(packed, np.cumsum(sizes[:-1]))
        scratch = aligned(sum(whole_panels(width) for width in widths))
        self._outputs = scratch[-whole_panels(outputs) :][:outputs]
        arguments = packed, np.array([ACTIVATIONS.index(network["activation"]), *widths]), scratch
        self._statistics: DoubleArray | None = None
        self._forward: Callable[[np.ndarray], Any] = partial(mlp, *arguments)
        if network["normalize"]:
            self._statistics = np.zeros((4, inputs))
            self._statistics[1] = 1
            self._forward = partial(normalized_mlp, *arguments, self._statistics.reshape(-1))
        self._input = np.empty(inputs)
        self._decoder = make_decoder(network["actions"], self._outputs)
        self._see: Callable[[np.ndarray], Any] = self._forward
        # Most often the index of the largest output is the action: a call less.
        self._is_action = network["actions"] | {"n": 0} == {"kind": "discrete", "n": 0, "start": 0}
        self._choose = self._see if self._is_action else self._see_and_decode

    def bind(self, theta: FloatArray, statistics: DoubleArray | None = None) -> None:
        """Takes over theta: (P,) float32, and statistics: (2, inputs) for the observations."""
        assert theta.size == self._size
        start = 0
        for (inputs, outputs), packed in zip(self._layers, self._packed, strict=True):
            middle, stop = start + inputs * outputs, start + (inputs + 1) * outputs
            pack_dense(theta[start:middle], theta[middle:stop], inputs, outputs, packed)
            start = stop
        if self._statistics is not None and statistics is not None:
            self._statistics[:2] = statistics

    def reset(self, noise_seeds: NoiseSeeds = None) -> None:
        """Starts an episode; noise_seeds: for noise on its actions."""
        self._decoder.reset(noise_seeds)
        if self._statistics is not None:
            self._statistics[2:] = 0

    def act(self, observation: np.ndarray) -> Any:
        """The best action for an observation: (inputs,)."""
        try:
            return self._choose(observation)
        except TypeError:  # neither float32 nor float64, not contiguous, read-only, no array ...
            self._see = self._convert_and_see
            self._choose = self._see if self._is_action else self._see_and_decode
            return self._choose(observation)

    def observed(self) -> DoubleArray | None:
        """Of the observations since the reset: sums of deviations and of their squares."""
        return None if self._statistics is None else self._statistics[2:].copy()

    def outputs(self) -> FloatArray:
        """The network's outputs for the last observation: (outputs,)."""
        return self._outputs.copy()

    def _see_and_decode(self, observation: np.ndarray) -> Any:
        return self._decoder(self._see(observation))

    def _convert_and_see(self, observation: np.ndarray) -> int:
        np.copyto(self._input, observation, casting="unsafe")
        return self._forward(self._input)
