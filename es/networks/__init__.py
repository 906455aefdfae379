"""The compiled actors that play the networks of `es.model`, and what decodes their actions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from es.networks.convlstm import ConvLSTMActor
from es.networks.mlp import MLPActor
from es.noise import FloatArray


def make_actor(
    network: Mapping[str, Any], vbn_batch: FloatArray | None = None
) -> MLPActor | ConvLSTMActor:
    """Return what plays the described network with the parameters that it is bound to.

    vbn_batch: (N, 1, 42, 42) float32, where virtual batch normalisation is used.
    """
    if network["kind"] == "mlp":
        return MLPActor(network)
    return ConvLSTMActor(network, vbn_batch)
