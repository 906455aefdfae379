"""The MLP for vector observations: the torch module, and the actor that plays it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise

import numpy as np
from torch import Tensor, nn
from torch.nn import functional

from es.kernels.layers import aligned, dense_selu_layers, pack_dense, packed_size, whole_panels
from es.noise import FloatArray

HIDDEN = 64


class MLP(nn.Module):
    """Two hidden layers of 64 SELU units. Observation: (inputs,) float32; logits: (actions,)."""

    def __init__(self, inputs: int, actions: int) -> None:
        super().__init__()
        self.linear1 = nn.Linear(inputs, HIDDEN)
        self.linear2 = nn.Linear(HIDDEN, HIDDEN)
        self.actor_linear = nn.Linear(HIDDEN, actions)

    def forward(self, observation: Tensor, state: None = None) -> tuple[Tensor, None]:
        """Logits, and no state for the next step."""
        x = functional.selu(self.linear1(observation))
        x = functional.selu(self.linear2(x))
        return self.actor_linear(x), None


class MLPActor:
    """Plays the MLP greedily, one observation at a time."""

    def __init__(self, inputs: int, actions: int) -> None:
        widths = (inputs, HIDDEN, HIDDEN, actions)
        self._layers = list(pairwise(widths))
        self._size = sum((inputs + 1) * outputs for inputs, outputs in self._layers)
        sizes = [packed_size(*layer) for layer in self._layers]
        packed = aligned(sum(sizes))
        self._packed = np.split(packed, np.cumsum(sizes[:-1]))
        scratch = aligned(sum(whole_panels(width) for width in widths))
        self._logits = scratch[-whole_panels(actions) :][:actions]
        self._act = partial(dense_selu_layers, packed, np.array(widths), scratch)
        self._input = np.empty(inputs)
        self._choose: Callable[[np.ndarray], int] = self._act

    def bind(self, theta: FloatArray) -> None:
        """Takes over theta: (P,) float32."""
        assert theta.size == self._size
        start = 0
        for (inputs, outputs), packed in zip(self._layers, self._packed, strict=True):
            middle, stop = start + inputs * outputs, start + (inputs + 1) * outputs
            pack_dense(theta[start:middle], theta[middle:stop], inputs, outputs, packed)
            start = stop

    def reset(self) -> None:
        """Starts an episode; there is nothing to forget."""

    def act(self, observation: np.ndarray) -> int:
        """The best action for an observation: (inputs,)."""
        try:
            return self._choose(observation)
        except TypeError:  # neither float32 nor float64, not contiguous, read-only, no array ...
            self._choose = self._convert_and_choose
            return self._choose(observation)

    def logits(self) -> FloatArray:
        """The outputs that the last action was chosen by: (actions,)."""
        return self._logits.copy()

    def _convert_and_choose(self, observation: np.ndarray) -> int:
        np.copyto(self._input, observation, casting="unsafe")
        return self._act(self._input)
