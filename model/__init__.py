"""The policies: torch modules whose layer names are the keys of every checkpoint, and their actors.

A network is described by a plain dict, `{"kind": "mlp" or "convlstm", "inputs": n, "actions": n}`,
from which master, workers and a later test build the same thing.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from es.errors import UsageError
from es.noise import FloatArray
from model.convlstm import ConvLSTM, ConvLSTMActor
from model.mlp import MLP, MLPActor

torch.set_num_threads(1)  # workers fill the cores, and sums are rounded the same everywhere


def describe_network(shape: tuple[int, ...], actions: int, *, small_net: bool) -> dict[str, Any]:
    """The network for observations of `shape`; raises UsageError where the choice cannot work."""
    if len(shape) == 1:
        return {"kind": "mlp", "inputs": shape[0], "actions": actions}
    if small_net:
        raise UsageError(
            "--small-net: the MLP cannot see images; leave the flag out to use the Convnet-LSTM"
        )
    return {"kind": "convlstm", "inputs": shape[0], "actions": actions}


def make_module(network: Mapping[str, Any]) -> MLP | ConvLSTM:
    """The described module; raises KeyError or TypeError where the description is not one."""
    kinds: dict[str, type[MLP | ConvLSTM]] = {"mlp": MLP, "convlstm": ConvLSTM}
    return kinds[network["kind"]](network["inputs"], network["actions"])


def make_actor(network: Mapping[str, Any]) -> MLPActor | ConvLSTMActor:
    """What plays the described network, with parameters that it is bound to as theta."""
    actors: dict[str, type[MLPActor | ConvLSTMActor]] = {"mlp": MLPActor, "convlstm": ConvLSTMActor}
    return actors[network["kind"]](network["inputs"], network["actions"])


def initial_theta(network: Mapping[str, Any], seed: int) -> FloatArray:
    """Parameters by torch's default initialisation, drawn from `seed`: (P,) float32."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return flatten(network, make_module(network).state_dict())


def layer_shapes(network: Mapping[str, Any]) -> dict[str, torch.Size]:
    """The shapes of the parameters by layer name, in the order in which theta holds them."""
    return _layer_shapes(network["kind"], network["inputs"], network["actions"])


@functools.cache  # every checkpoint asks for them
def _layer_shapes(kind: str, inputs: int, actions: int) -> dict[str, torch.Size]:
    network = {"kind": kind, "inputs": inputs, "actions": actions}
    with torch.device("meta"):  # shapes alone: nothing is allocated or drawn
        return {name: tensor.shape for name, tensor in make_module(network).state_dict().items()}


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
        if not torch.isfinite(parameters[name]).all():
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
