"""The Convnet-LSTM for images: the torch module, and the actor that plays it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from torch import Tensor, nn
from torch.nn import functional

from es.kernels import convolutions, layers
from es.kernels.convolutions import CHANNELS
from es.kernels.layers import aligned, packed_size, whole_panels
from es.noise import FloatArray

SIZES = (42, 21, 11, 6, 3)  # of the image's sides, before and after each convolution
FEATURES = CHANNELS * SIZES[-1] ** 2
UNITS = 256


class ConvLSTM(nn.Module):
    """Four convolutions (42 -> 21 -> 11 -> 6 -> 3) and an LSTM cell of 256 units.

    Observation: (1, 42, 42) float32; logits: (actions,).
    """

    def __init__(self, channels: int, actions: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, CHANNELS, 3, stride=2, padding=1)
        self.conv2 = nn.Conv2d(CHANNELS, CHANNELS, 3, stride=2, padding=1)
        self.conv3 = nn.Conv2d(CHANNELS, CHANNELS, 3, stride=2, padding=1)
        self.conv4 = nn.Conv2d(CHANNELS, CHANNELS, 3, stride=2, padding=1)
        self.lstm = nn.LSTMCell(FEATURES, UNITS)
        self.actor_linear = nn.Linear(UNITS, actions)

    def forward(
        self, observation: Tensor, state: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Logits and the LSTM's state for the next step; without one it is zero."""
        x = observation.unsqueeze(0)
        for conv in (self.conv1, self.conv2, self.conv3, self.conv4):
            x = functional.selu(conv(x))
        hidden, cell = self.lstm(x.flatten(1), state)
        return self.actor_linear(hidden)[0], (hidden, cell)


class ConvLSTMActor:
    """Plays the Convnet-LSTM greedily, one observation at a time."""

    def __init__(self, channels: int, actions: int) -> None:
        if channels != 1:
            raise ValueError(f"images of {channels} channels; 1 is supported")
        self._inputs = (channels, CHANNELS, CHANNELS, CHANNELS)
        self._convolutions = [aligned((1 + 9 * inputs) * CHANNELS) for inputs in self._inputs]
        self._framed = aligned((SIZES[0] + 2) ** 2)
        self._images = [aligned((size + 2) ** 2 * CHANNELS) for size in SIZES[1:]]
        self._lstm = aligned(packed_size(FEATURES + UNITS, 4 * UNITS))
        self._x = aligned(FEATURES + UNITS)
        self._hidden = self._x[FEATURES:]
        self._cell, self._gates = aligned(UNITS), aligned(4 * UNITS)
        self._head = aligned(packed_size(UNITS, actions))
        self._actions, self._logits = actions, aligned(whole_panels(actions))

    def bind(self, theta: FloatArray) -> None:
        """Takes over theta: (P,) float32."""
        parts = self._split(theta)
        for inputs, packed in zip(self._inputs, self._convolutions, strict=True):
            convolutions.pack_convolution(next(parts), next(parts), inputs, packed)
        weights_and_biases = next(parts), next(parts), next(parts), next(parts)
        layers.pack_lstm(*weights_and_biases, FEATURES, UNITS, self._lstm)
        layers.pack_dense(next(parts), next(parts), UNITS, self._actions, self._head)

    def reset(self) -> None:
        """Forgets the previous episode."""
        self._hidden[:] = 0
        self._cell[:] = 0

    def act(self, observation: np.ndarray) -> int:
        """The best action for an observation: (1, 42, 42) float32."""
        image = self._images[0]
        convolutions.convolve_image(
            self._convolutions[0], observation.reshape(-1), SIZES[0], self._framed, image
        )
        for packed, size, result in zip(
            self._convolutions[1:], SIZES[1:], self._images[1:], strict=False
        ):
            layers.selu(image)
            convolutions.convolve(packed, image, size, result)
            image = result
        layers.selu(image)
        convolutions.channels_first(image, SIZES[-1], self._x)
        layers.lstm_cell(self._lstm, self._x, UNITS, self._cell, self._gates)
        return layers.dense_argmax(self._head, self._hidden, UNITS, self._actions, self._logits)

    def logits(self) -> FloatArray:
        """The outputs that the last action was chosen by: (actions,)."""
        return self._logits[: self._actions].copy()

    def _split(self, theta: FloatArray) -> Iterator[FloatArray]:
        """Weights and biases of the layers, in the order of the module's state_dict."""
        sizes = [size for inputs in self._inputs for size in (CHANNELS * inputs * 9, CHANNELS)]
        sizes += [4 * UNITS * FEATURES, 4 * UNITS * UNITS, 4 * UNITS, 4 * UNITS]
        sizes += [self._actions * UNITS, self._actions]
        assert theta.size == sum(sizes)
        return iter(np.split(theta, np.cumsum(sizes[:-1])))
