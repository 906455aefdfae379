"""The compiled actor that plays `es.model.ConvLSTM`."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from es.kernels import convolutions, layers, packing
from es.kernels.convolutions import CHANNELS
from es.kernels.packing import aligned, packed_size, whole_panels
from es.networks import count_outputs
from es.networks.actions import Box, NoiseSeeds, Sampler, make_decoder
from es.noise import DoubleArray, FloatArray

SIZES = (42, 21, 11, 6, 3)  # of the image's sides, before and after each convolution
FEATURES = CHANNELS * SIZES[-1] ** 2
UNITS = 256
NO_BIAS = np.zeros(CHANNELS, np.float32)
VARIANCE_ADDED = 1e-5  # as in torch's batch normalisation


class ConvLSTMActor:
    """Play the Convnet-LSTM, one observation at a time.

    vbn_batch: (N, 1, 42, 42) float32, for virtual batch normalisation. outputs: (outputs,), of the
    last observation.
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
        self._panels = aligned(whole_panels(outputs))
        self.outputs = self._panels[:outputs]
        self._decode = make_decoder(network["actions"], self.outputs)
        self._sizes = []  # of theta's parts: the weights and biases of the layers
        for inputs in self._inputs:
            self._sizes += [9 * inputs * CHANNELS, CHANNELS] + [CHANNELS] * network["vbn"]
        self._sizes += [4 * UNITS * FEATURES, 4 * UNITS * UNITS, 4 * UNITS, 4 * UNITS]
        self._sizes += [outputs * UNITS, outputs]

    def bind(self, theta: FloatArray, statistics: DoubleArray | None = None) -> None:
        """Use theta: (P,) float32; images have no statistics."""
        assert theta.size == sum(self._sizes)
        parts = iter(np.split(theta, np.cumsum(self._sizes[:-1])))
        batch = self._vbn_batch  # then the images that each layer takes
        for layer, packed in enumerate(self._convolutions):
            weight, bias = next(parts), NO_BIAS if batch is not None else next(parts)
            convolutions.pack_convolution(weight, bias, self._inputs[layer], packed)
            if batch is not None:
                moments = self._moments(layer, batch)
                convolutions.normalize(packed, moments, VARIANCE_ADDED, next(parts), next(parts))
                if layer < len(self._convolutions) - 1:
                    batch = self._activations(layer, batch)
        weights_and_biases = next(parts), next(parts), next(parts), next(parts)
        packing.pack_lstm(*weights_and_biases, FEATURES, UNITS, self._lstm)
        packing.pack_dense(next(parts), next(parts), UNITS, self.outputs.size, self._head)

    def reset(self, seed: int | None = None, noise_seeds: NoiseSeeds = None) -> None:
        """Start the episode of a seed. noise_seeds: for noise on its actions."""
        self._hidden[:] = 0
        self._cell[:] = 0
        if isinstance(self._decode, Box | Sampler):
            self._decode.reset(seed, noise_seeds)

    def act(self, observation: np.ndarray) -> Any:
        """Return the action for an observation: (1, 42, 42) float32."""
        image = observation
        for layer in range(len(self._images)):
            image = self._activate(layer, image)
        convolutions.channels_first(image, SIZES[-1], self._x)
        layers.lstm_cell(self._lstm, self._x, UNITS, self._cell, self._gates)
        largest = layers.dense_argmax(
            self._head, self._hidden, UNITS, self.outputs.size, self._panels
        )
        return self._decode(largest)

    def observed(self) -> DoubleArray | None:
        """Return None: images are normalised by their own running averages."""
        return None

    def _convolve(self, layer: int, image: np.ndarray) -> FloatArray:
        """Return the result of a convolution, before its activation, until the next call."""
        packed, size, result = self._convolutions[layer], SIZES[layer], self._images[layer]
        if layer == 0:
            convolutions.convolve_image(packed, image.reshape(-1), size, self._framed, result)
        else:
            convolutions.convolve(packed, image, size, result)
        return result

    def _activate(self, layer: int, image: np.ndarray) -> FloatArray:
        """Return the result of a convolution and its activation, until the next call."""
        result = self._convolve(layer, image)
        layers.selu(result)
        return result

    def _activations(self, layer: int, batch: FloatArray) -> FloatArray:
        """Return a convolution's activated results, which the next layer takes: (N, size)."""
        results = np.empty((len(batch), self._images[layer].size), np.float32)
        for image, result in zip(batch, results, strict=True):
            result[:] = self._activate(layer, image)
        return results

    def _moments(self, layer: int, batch: FloatArray) -> DoubleArray:
        """Return means and variances of a convolution's channels over its inputs: (2 * 32,)."""
        moments = np.zeros(2 * CHANNELS)
        size = SIZES[layer + 1]
        for image in batch:
            convolutions.add_moments(self._convolve(layer, image), size, moments)
        moments /= len(batch) * size**2
        moments[CHANNELS:] -= moments[:CHANNELS] ** 2
        return moments
