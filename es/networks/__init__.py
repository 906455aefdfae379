"""What plays: compiled actors for the networks of `es.model`, and one for a --net module.

A plain dict describes a network: `{"kind": "mlp", "inputs": n, "hidden": [n, ...], "activation":
..., "normalize": bool, "obs_clip": float}`, `{"kind": "convlstm", "inputs": 1, "vbn": bool}` or
that of `es.networks.custom.describe_custom`. Each has the "actions", described by
`es.environments.spaces`, and the "shapes" of the parameters by name, in theta's order.
"""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from es.algorithm.noise import FloatArray

if TYPE_CHECKING:  # a master with workers has no actor, so it loads no kernels
    from es.networks.actors import ConvLSTMActor, MLPActor
    from es.networks.custom import Custom, TorchActor


def outputs_needed(actions: Mapping[str, Any]) -> int:
    """Return how many outputs a network needs to choose the described actions."""
    if actions["kind"] == "discrete":
        return actions["n"]
    if actions["kind"] == "multi-discrete":
        return sum(actions["counts"])
    return math.prod(actions["shape"]) * (actions.get("bins") or 1)


def clip_of(network: Mapping[str, Any]) -> float:
    """Return at how many standard deviations the network's observations are clipped."""
    return network["obs_clip"] or math.inf


def split(network: Mapping[str, Any], theta: FloatArray) -> dict[str, FloatArray]:
    """Return views of theta, (P,), by parameter name, in the parameters' shapes."""
    shapes = network["shapes"]
    ends = np.cumsum([math.prod(shape) for shape in shapes.values()])
    assert theta.size == ends[-1]
    parts = np.split(theta, ends[:-1])
    return {
        name: part.reshape(shape) for part, (name, shape) in zip(parts, shapes.items(), strict=True)
    }


def make_actor(
    network: Mapping[str, Any], vbn_batch: FloatArray | None = None, custom: "Custom | None" = None
) -> "MLPActor | ConvLSTMActor | TorchActor":
    """Make the actor of the described network.

    vbn_batch: (N, 1, 42, 42) float32, for virtual batch normalisation. custom: for a --net module.
    """
    if custom:
        from es.networks.custom import TorchActor

        return TorchActor(network, custom)
    from es.networks.actors import ConvLSTMActor, MLPActor

    return MLPActor(network) if network["kind"] == "mlp" else ConvLSTMActor(network, vbn_batch)
