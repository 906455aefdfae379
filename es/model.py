"""The policies: torch modules whose layer names are the keys of every checkpoint, and their actors.

A network is described by a plain dict, from which master, workers and a later test build the same
thing: `{"kind": "mlp", "inputs": n, "hidden": [n, ...], "activation": ..., "normalize": bool,
"actions": {...}}` or `{"kind": "convlstm", "inputs": 1, "vbn": bool, "actions": {...}}`.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from es.networks.actions import count_outputs
from es.networks.convlstm import ConvLSTM, ConvLSTMActor
from es.networks.mlp import MLP, MLPActor
from es.noise import FloatArray

torch.set_num_threads(1)  # workers fill the cores, and sums are rounded the same everywhere


def make_module(network: Mapping[str, Any]) -> MLP | ConvLSTM:
    """The described module; raises KeyError or TypeError where the description is not one."""
    outputs = count_outputs(network["actions"])
    if network["kind"] == "mlp":
        return MLP(network["inputs"], outputs, network["hidden"], network["activation"])
    return ConvLSTM(network["inputs"], outputs, vbn=network["vbn"])


def make_actor(
    network: Mapping[str, Any], reference: FloatArray | None = None
) -> MLPActor | ConvLSTMActor:
    """What plays the described network, with parameters that it is bound to as theta.

    reference: (N, 1, 42, 42) float32, the batch of virtual batch normalisation, where it is used.
    """
    if network["kind"] == "mlp":
        return MLPActor(network)
    return ConvLSTMActor(network, reference)


def initial_theta(network: Mapping[str, Any], seed: int) -> FloatArray:
    """Parameters by torch's default initialisation, drawn from `seed`: (P,) float32."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return flatten(network, make_module(network).state_dict())


def layer_shapes(network: Mapping[str, Any]) -> dict[str, torch.Size]:
    """The shapes of the parameters by layer name, in the order in which theta holds them."""
    return _layer_shapes(json.dumps(network))


@functools.cache  # every checkpoint asks for them
def _layer_shapes(network: str) -> dict[str, torch.Size]:
    with torch.device("meta"):  # shapes alone: nothing is allocated or drawn
        module = make_module(json.loads(network))
    return {name: tensor.shape for name, tensor in module.state_dict().items()}


def flatten(network: Mapping[str, Any], parameters: Mapping[str, Any]) -> FloatArray:
    """theta: (P,) float32 from parameters by layer name.

    Raises ValueError where names or shapes are not those of the network, or a value is not finite.
    """
    shapes = layer_shapes(network)
    odd = sorted(map(str, set(parameters) ^ set(shapes)))
    if odd:
        raise ValueError(f"its layers are not those of the {network['kind']} network: {odd}")
    for name, shape in shapes.items():
        found = getattr(parameters[name], "shape", ())
        if found != shape:
            raise ValueError(f"{name} should have the shape {tuple(shape)}, not {tuple(found)}")
        if not parameters[name].is_floating_point():
            raise ValueError(f"{name} holds no floating-point numbers")
        if not torch.isfinite(parameters[name].float()).all():
            raise ValueError(f"{name} holds numbers that are not finite")
    return torch.cat([parameters[name].detach().reshape(-1).float() for name in shapes]).numpy()


def unflatten(network: Mapping[str, Any], theta: FloatArray) -> dict[str, Tensor]:
    """Copies of theta's parts by layer name: the inverse of `flatten`."""
    shapes = layer_shapes(network)
    parts = torch.from_numpy(theta).split([shape.numel() for shape in shapes.values()])
    return {
        name: part.reshape(shape).clone()
        for (name, shape), part in zip(shapes.items(), parts, strict=True)
    }
