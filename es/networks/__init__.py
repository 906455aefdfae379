"""The actors: compiled ones for the networks of `es.model`, and one for the user's own."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from es.noise import FloatArray

if TYPE_CHECKING:  # their kernels take a while to load, and a master with workers has no actor
    from es.networks.convlstm import ConvLSTMActor
    from es.networks.mlp import MLPActor
    from es.networks.own import Own
    from es.networks.own_actor import OwnActor


def count_outputs(actions: Mapping[str, Any]) -> int:
    """Return how many outputs a network needs to choose the described actions."""
    if actions["kind"] == "discrete":
        return actions["n"]
    if actions["kind"] == "multi-discrete":
        return sum(actions["counts"])
    return math.prod(actions["shape"]) * (actions.get("bins") or 1)


def clip_of(network: Mapping[str, Any]) -> float:
    """Return at how many standard deviations the network's observations are clipped."""
    return network["obs_clip"] or math.inf


def make_actor(
    network: Mapping[str, Any],
    vbn_batch: FloatArray | None = None,
    own: "Own | None" = None,
) -> "MLPActor | ConvLSTMActor | OwnActor":
    """Make the actor of the described network.

    vbn_batch: (N, 1, 42, 42) float32, for virtual batch normalisation. own: for a network of the
    user's own.
    """
    if own:
        from es.networks.own_actor import OwnActor

        return OwnActor(network, own)
    if network["kind"] == "mlp":
        from es.networks.mlp import MLPActor

        return MLPActor(network)
    from es.networks.convlstm import ConvLSTMActor

    return ConvLSTMActor(network, vbn_batch)
