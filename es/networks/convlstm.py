"""The compiled actor that plays `es.model.ConvLSTM`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from es.kernels import convolutions, layers, packing
from es.kernels.convolutions import CHANNELS
from es.kernels.packing import aligned, packed_size, whole_panels
from es.networks.actions import NoiseSeeds, count_outputs, make_decoder
from es.noise import DoubleArray, FloatArray

SIZES = (42, 21, 11, 6, 3)  # of the image's sides, before and after each convolution
FEATURES = CHANNELS * SIZES[-1] ** 2
UNITS = 256
NO_BIAS = np.zeros(CHANNELS, np.float32)
VARIANCE_ADDED = 1e-5  # as in torch's batch normalisation


class ConvLSTMActor:
    """Plays the Convnet-LSTM, one observation at a time: the best action, without drawing lots.

    vbn_batch: (N, 1, 42, 42) float32, where virtual batch normalisation is used.
    """

    def __init__(self, network: Mapping[str, Any], vbn_batch: FloatArray | None = None) -> None:
        if network["inputs"] != 1:
            raise ValueError(f"images of {network['inputs']} channels; 1 is supported")
        if network["vbn"] and vbn_batch is None:
            raise ValueError("virtual batch normalisation without its batch")
        outputs = count_outputs(network["actions"])
        self._vbn_batch = vbn_batch if network["vbn"] else None
        self._inputs = (1, CHANNELS, CHANNELS, CHANNELS)
        self._convolutions = [aligned((1 + 9 * inputs) * CHANNELS) for inputs in self._inputs]
        self._framed = aligned((SIZES[0] + 2) ** 2)
        self._images = [aligned((size + 2) ** 2 * CHANNELS) for size in SIZES[1:]]
        self._lstm = aligned(packed_size(FEATURES + UNITS, 4 * UNITS))
        self._x = aligned(FEATURES + UNITS)
        self._hidden = self._x[FEATURES:]
        self._cell, self._gates = aligned(UNITS), aligned(4 * UNITS)
        self._head = aligned(packed_size(UNITS, outputs))
        self._count, self._outputs = outputs, aligned(whole_panels(outputs))
        self._decoder = make_decoder(network["actions"], self._outputs[:outputs])
        self._sizes = []  # of theta's parts: the weights and biases of the layers
        for inputs in self._inputs:
            self._sizes += [9 * inputs * CHANNELS, CHANNELS] + [CHANNELS] * network["vbn"]
        self._sizes += [4 * UNITS * FEATURES, 4 * UNITS * UNITS, 4 * UNITS, 4 * UNITS]
        self._sizes += [outputs * UNITS, outputs]

    def bind(self, theta: FloatArray, statistics: DoubleArray | None = None) -> None:
        """Takes over theta: (P,) float32; images have no statistics."""
        assert theta.size == sum(self._sizes)
        parts = iter(np.split(theta, np.cumsum(self._sizes[:-1])))
        for layer, (inputs, packed) in enumerate(
            zip(self._inputs, self._convolutions, strict=True)
        ):
            weight = next(parts)
            if self._vbn_batch is None:
                convolutions.pack_convolution(weight, next(parts), inputs, packed)
            else:
                convolutions.pack_convolution(weight, NO_BIAS, inputs, packed)
                moments = self._moments(layer)
                convolutions.normalize(packed, moments, VARIANCE_ADDED, next(parts), next(parts))
        weights_and_biases = next(parts), next(parts), next(parts), next(parts)
        packing.pack_lstm(*weights_and_biases, FEATURES, UNITS, self._lstm)
        packing.pack_dense(next(parts), next(parts), UNITS, self._count, self._head)

    def reset(self, noise_seeds: NoiseSeeds = None) -> None:
        """Forgets the previous episode; noise_seeds: for noise on the next one's actions."""
        self._hidden[:] = 0
        self._cell[:] = 0
        self._decoder.reset(noise_seeds)

    def act(self, observation: np.ndarray) -> Any:
        """The best action for an observation: (1, 42, 42) float32."""
        image = self._convolve(observation, len(self._images) - 1)
        layers.selu(image)
        convolutions.channels_first(image, SIZES[-1], self._x)
        layers.lstm_cell(self._lstm, self._x, UNITS, self._cell, self._gates)
        return self._decoder(
            layers.dense_argmax(self._head, self._hidden, UNITS, self._count, self._outputs)
        )

    def observed(self) -> DoubleArray | None:
        """Nothing: images are normalised by running averages of their own."""
        return None

    def outputs(self) -> FloatArray:
        """The network's outputs for the last observation: (outputs,)."""
        return self._outputs[: self._count].copy()

    def _convolve(self, observation: np.ndarray, last: int) -> FloatArray:
        """The result of the convolutions up to the one of index `last`, before its activation."""
        image = self._images[0]
        convolutions.convolve_image(
            self._convolutions[0], observation.reshape(-1), SIZES[0], self._framed, image
        )
        for layer in range(1, last + 1):
            layers.selu(image)
            convolutions.convolve(
                self._convolutions[layer], image, SIZES[layer], self._images[layer]
            )
            image = self._images[layer]
        return image

    def _moments(self, layer: int) -> DoubleArray:
        """Means and variances of a convolution's channels over the batch: (2 * 32,)."""
        assert self._vbn_batch is not None
        moments = np.zeros(2 * CHANNELS)
        size = SIZES[layer + 1]
        for observation in self._vbn_batch:
            convolutions.add_moments(self._convolve(observation, layer), size, moments)
        moments /= len(self._vbn_batch) * size**2
        moments[CHANNELS:] -= moments[:CHANNELS] ** 2
        return moments
