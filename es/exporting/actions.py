"""Actions out of a network's outputs, as a torch module."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from es.networks.actors import rounded_inwards


class Decoder(nn.Module):
    """Make the described action of a network's outputs, as `es.networks.actors` does.

    Where actions are drawn (--sample-actions), make the likeliest one; add no noise.
    """

    low: Tensor
    high: Tensor
    values: Tensor
    start: Tensor

    def __init__(self, actions: Mapping[str, Any]) -> None:
        super().__init__()
        self._kind = kind = actions["kind"]
        self._shape = actions.get("shape", ())
        named = {"multi-binary": "int8", "discrete": "int64"}.get(kind) or actions["dtype"]
        self._dtype: torch.dtype = torch.from_numpy(np.empty(0, named)).dtype
        self._bins, self._squash = actions.get("bins"), actions.get("squash")
        if kind == "box":
            low, high = (
                rounded_inwards(actions[bound], inwards)
                for bound, inwards in (("low", np.inf), ("high", -np.inf))
            )
            self.register_buffer("low", torch.from_numpy(low))
            self.register_buffer("high", torch.from_numpy(high))
            if self._bins:  # (dimensions, bins)
                values = np.linspace(low, high, self._bins, dtype=np.float32, axis=1)
                self.register_buffer("values", torch.from_numpy(values))
        elif kind != "multi-binary":
            self._counts = [actions["n"]] if kind == "discrete" else actions["counts"]
            self.register_buffer("start", torch.tensor(actions["start"]).reshape(-1))

    def forward(self, outputs: Tensor) -> Tensor:
        """Return the action as the environment takes it. outputs: (outputs,) float32."""
        return self._numbers(outputs).reshape(self._shape).to(self._dtype)

    def _numbers(self, outputs: Tensor) -> Tensor:
        if self._kind == "multi-binary":
            return outputs > 0
        if self._kind != "box":
            choices = [part.argmax() for part in outputs.split(self._counts)]
            return torch.stack(choices) + self.start
        if self._bins:
            largest = outputs.reshape(-1, self._bins).argmax(dim=1, keepdim=True)
            numbers = self.values.gather(1, largest)
        elif self._squash == "clip":
            numbers = torch.clamp(outputs, self.low, self.high)
        else:
            share = (outputs.tanh() + 1) * 0.5
            numbers = torch.clamp(self.low + share * (self.high - self.low), self.low, self.high)
        return numbers if self._dtype.is_floating_point else numbers.round()
