"""The compiled actor that plays `es.model.MLP`."""

from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from es.errors import MisfitError
from es.kernels.layers import ACTIVATIONS, mlp, normalized_mlp
from es.kernels.packing import aligned, pack_dense, packed_size, whole_panels
from es.networks import clip_of, count_outputs
from es.networks.actions import Box, NoiseSeeds, Sampler, make_decoder
from es.noise import DoubleArray, FloatArray


class MLPActor:
    """Play the MLP, one observation at a time.

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
            self._forward = partial(
                normalized_mlp, *arguments, self._statistics.reshape(-1), clip_of(network)
            )
        self._inputs = inputs
        actions = network["actions"]
        self._decode = make_decoder(actions, self.outputs)
        # Most often the index of the largest output is the action, which saves a call.
        is_action = actions["kind"] == "discrete" and actions["start"] == 0
        is_action = is_action and not actions.get("sample")
        self._compiled = self._forward if is_action else self._forward_and_decode
        self._choose = self._compiled

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

    def reset(self, seed: int | None = None, noise_seeds: NoiseSeeds = None) -> None:
        """Start the episode of a seed. noise_seeds: for noise on its actions."""
        if isinstance(self._decode, Box | Sampler):
            self._decode.reset(seed, noise_seeds)
        if self._statistics is not None:
            self._statistics[2:] = 0

    def act(self, observation: np.ndarray) -> Any:
        """Return the action for an observation: (inputs,); raise MisfitError."""
        try:
            return self._choose(observation)
        except (TypeError, ValueError):  # not contiguous, integers, read-only, no array, misfit ...
            return self._adapt(observation)

    def observed(self) -> DoubleArray | None:
        """Return sums of the deviations since the reset and of their squares: (2, inputs)."""
        return None if self._statistics is None else self._statistics[2:].copy()

    def _forward_and_decode(self, observation: np.ndarray) -> Any:
        return self._decode(self._forward(observation))

    def _adapt(self, observation: Any) -> Any:
        """Convert this observation, and all that follow."""
        try:
            found = np.asarray(observation)
        except ValueError:
            found = np.empty(0, object)  # a list of lists of different lengths
        if found.shape != (self._inputs,) or found.dtype.kind not in "biuf":
            raise MisfitError(
                f"its observation has the shape {found.shape} and the type {found.dtype}, and "
                f"should hold {self._inputs} numbers",
                steps_ago=1,
            )
        self._choose = self._convert
        return self._choose(observation)

    def _convert(self, observation: Any) -> Any:
        # Unlike np.copyto, this neither repeats a single number nor reads text.
        return self._compiled(np.asarray(observation).astype(np.float64, "C", "same_kind"))
