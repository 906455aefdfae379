"""The policies: torch modules whose layer names are the keys of every checkpoint, and the actor.

A network is described by a plain dict, `{"kind": "mlp" or "convlstm", "inputs": n, "actions": n}`,
from which master, workers and a later test build the same thing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from es.errors import UsageError
from es.noise import FloatArray

IMAGE_SHAPE = (1, 42, 42)
State = tuple[Tensor, Tensor] | None

torch.set_num_threads(1)  # workers fill the cores, and sums are rounded the same everywhere


class MLP(nn.Module):
    """Two hidden layers of 64 SELU units. Observation: (inputs,) float32; logits: (actions,)."""

    def __init__(self, inputs: int, actions: int) -> None:
        super().__init__()
        self.linear1 = nn.Linear(inputs, 64)
        self.linear2 = nn.Linear(64, 64)
        self.actor_linear = nn.Linear(64, actions)

    def initial_state(self) -> State:
        """No memory."""
        return None

    def forward(self, observation: Tensor, state: State = None) -> tuple[Tensor, State]:
        """Logits and the state for the next step."""
        x = functional.selu(self.linear1(observation))
        x = functional.selu(self.linear2(x))
        return self.actor_linear(x), None


class ConvLSTM(nn.Module):
    """Four convolutions (42 -> 21 -> 11 -> 6 -> 3) and an LSTM cell of 256 units.

    Observation: (1, 42, 42) float32; logits: (actions,).
    """

    def __init__(self, channels: int, actions: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 32, 3, stride=2, padding=1)
        self.conv2 = nn.Conv2d(32, 32, 3, stride=2, padding=1)
        self.conv3 = nn.Conv2d(32, 32, 3, stride=2, padding=1)
        self.conv4 = nn.Conv2d(32, 32, 3, stride=2, padding=1)
        self.lstm = nn.LSTMCell(32 * 3 * 3, 256)
        self.actor_linear = nn.Linear(256, actions)

    def initial_state(self) -> State:
        """The zeros that every episode starts with."""
        return torch.zeros(1, 256), torch.zeros(1, 256)

    def forward(self, observation: Tensor, state: State) -> tuple[Tensor, State]:
        """Logits and the LSTM's state for the next step."""
        x = observation.unsqueeze(0)
        for conv in (self.conv1, self.conv2, self.conv3, self.conv4):
            x = functional.selu(conv(x))
        hidden, cell = self.lstm(x.flatten(1), state)
        return self.actor_linear(hidden)[0], (hidden, cell)


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


def initial_theta(network: Mapping[str, Any], seed: int) -> FloatArray:
    """Parameters by torch's default initialisation, drawn from `seed`: (P,) float32."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return flatten(network, make_module(network).state_dict())


def layer_shapes(network: Mapping[str, Any]) -> dict[str, torch.Size]:
    """The shapes of the parameters by layer name, in the order in which theta holds them."""
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


class Actor:
    """Plays the described network greedily, one observation at a time."""

    def __init__(self, network: Mapping[str, Any]) -> None:
        self.module = make_module(network).requires_grad_(False)
        parameters = list(self.module.parameters())
        # The parameters become views of one buffer: binding is one copy.
        self._theta = torch.empty(sum(parameter.numel() for parameter in parameters))
        parts = self._theta.split([parameter.numel() for parameter in parameters])
        for parameter, part in zip(parameters, parts, strict=True):
            parameter.data = part.view_as(parameter)
        is_vector = network["kind"] == "mlp"
        # Aligned by torch, always in the same way: alignment could change how sums are rounded.
        self._input = torch.empty((network["inputs"],) if is_vector else IMAGE_SHAPE)
        self._input_array = self._input.numpy()
        self._state: State = None

    def bind(self, theta: FloatArray) -> None:
        """Takes over theta: (P,) float32."""
        self._theta.copy_(torch.from_numpy(theta))

    def reset(self) -> None:
        """Forgets the previous episode."""
        self._state = self.module.initial_state()

    def logits(self, observation: np.ndarray) -> Tensor:
        """The network's outputs: (actions,)."""
        np.copyto(self._input_array, observation)
        logits, self._state = self.module(self._input, self._state)
        return logits

    def act(self, observation: np.ndarray) -> int:
        """The best action for an observation of the network's shape."""
        return int(self.logits(observation).argmax())
