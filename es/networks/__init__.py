"""The compiled actors that play the networks of `es.model`."""

from collections.abc import Mapping
from typing import Any

from es.networks.convlstm import ConvLSTMActor
from es.networks.mlp import MLPActor
from es.noise import FloatArray


def make_actor(
    network: Mapping[str, Any], vbn_batch: FloatArray | None = None
) -> MLPActor | ConvLSTMActor:
    """Make the actor of the described network.

    vbn_batch: (N, 1, 42, 42) float32, for virtual batch normalisation.
    """
    if network["kind"] == "mlp":
        return MLPActor(network)
    return ConvLSTMActor(network, vbn_batch)
