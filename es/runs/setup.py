"""What a run plays, as plain descriptions."""

from __future__ import annotations

from typing import Any, NamedTuple

from es.noise import FloatArray
from es.rollouts.rollout import Recipe


class Setup(NamedTuple):
    """Environment and network as plain descriptions, and how every process builds both alike.

    vbn_batch: (128, 1, 42, 42) float32, where virtual batch normalisation is used.
    """

    environment: dict[str, Any]
    network: dict[str, Any]
    recipe: Recipe
    vbn_batch: FloatArray | None = None

    @property
    def normalized_inputs(self) -> int:
        """How many numbers an observation has, where these are normalised, or else 0."""
        return self.network["inputs"] if self.network.get("normalize") else 0
