"""The two networks as torch modules: the definition of record.

Layer names are the keys of every checkpoint, and of pytorch-es's. In training, the compiled actors
of `es.networks` play these networks; tests compare them with the modules here.

A plain dict describes a network: `{"kind": "mlp", "inputs": n, "hidden": [n, ...], "activation":
..., "normalize": bool, "actions": {...}}` or `{"kind": "convlstm", "inputs": 1, "vbn": bool,
"actions": {...}}`; `es.networks.own` says how one describes a network of the user's own. Master,
workers and a later test build the same network from it.
"""

import functools
import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch
from gymnasium.spaces import Space
from torch import Tensor, nn
from torch.nn import functional

from es import networks
from es.environments.spaces import describe_actions
from es.noise import FloatArray

torch.set_num_threads(1)  # workers use all cores, and rounding is the same everywhere


class MLP(nn.Module):
    """Hidden layers `linear1`, `linear2`, ..., each activated, and `actor_linear`.

    hidden: their units, 64 and 64 in pytorch-es; none for a linear policy. activation: selu, tanh
    or relu. Observation: (inputs,) float32, normalised with "normalize"; result: (outputs,).
    """

    def __init__(
        self, inputs: int, outputs: int, hidden: Sequence[int], activation: str = "selu"
    ) -> None:
        super().__init__()
        self._activate = getattr(torch, activation)
        self._names = [f"linear{number}" for number in range(1, len(hidden) + 1)]
        for name, layer in zip(self._names, pairwise((inputs, *hidden)), strict=True):
            self.add_module(name, nn.Linear(*layer))
        self.actor_linear = nn.Linear((inputs, *hidden)[-1], outputs)

    def forward(self, observation: Tensor, state: None = None) -> tuple[Tensor, None]:
        """Return the outputs, and no state for the next step."""
        x = observation
        for name in self._names:
            x = self._activate(getattr(self, name)(x))
        return self.actor_linear(x), None


class VirtualBatchNorm(nn.Module):
    """Normalise each channel by its mean and deviation over a fixed batch, scale and shift it.

    Salimans et al. 2016, section 3.5, without the example's own share in the statistics, as in
    Salimans et al. 2017, section 2.2. images: (N, 32, side, side).
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("mean", torch.zeros(channels), persistent=False)
        self.register_buffer("variance", torch.ones(channels), persistent=False)

    def refer_to(self, images: Tensor) -> None:
        """Take the statistics of the fixed batch."""
        self.variance, self.mean = torch.var_mean(images, dim=(0, 2, 3), correction=0)

    def forward(self, images: Tensor) -> Tensor:
        """Return the normalised images."""
        return functional.batch_norm(images, self.mean, self.variance, self.weight, self.bias)


class ConvLSTM(nn.Module):
    """Four convolutions (42 -> 21 -> 11 -> 6 -> 3 pixels a side) and an LSTM cell of 256 units.

    vbn: virtual batch normalisation between each convolution, then without a bias, and its
    activation. Observation: (1, 42, 42) float32; result: (outputs,).
    """

    def __init__(self, channels: int, outputs: int, *, vbn: bool = False) -> None:
        super().__init__()
        for number, inputs in enumerate((channels, 32, 32, 32), 1):
            conv = nn.Conv2d(inputs, 32, 3, stride=2, padding=1, bias=not vbn)
            self.add_module(f"conv{number}", conv)
            self.add_module(f"norm{number}", VirtualBatchNorm(32) if vbn else nn.Identity())
        self.lstm = nn.LSTMCell(32 * 3 * 3, 256)
        self.actor_linear = nn.Linear(256, outputs)

    def refer_to(self, vbn_batch: Tensor) -> None:
        """Take the statistics of virtual batch normalisation from a batch: (N, 1, 42, 42)."""
        self._convolve(vbn_batch, refer=True)

    def forward(
        self, observation: Tensor, state: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Return the outputs and the LSTM's state for the next step; without one it is zero."""
        x = self._convolve(observation.unsqueeze(0))
        hidden, cell = self.lstm(x.flatten(1), state)
        return self.actor_linear(hidden)[0], (hidden, cell)

    def _convolve(self, x: Tensor, *, refer: bool = False) -> Tensor:
        for number in range(1, 5):
            x = getattr(self, f"conv{number}")(x)
            norm = getattr(self, f"norm{number}")
            if refer:
                norm.refer_to(x)
            x = functional.selu(norm(x))
        return x


def count_outputs(actions: Space, bins: int | None = None) -> int:
    """Return how many outputs a network needs to choose actions of a space.

    bins: --action-bins, if that is given. Raise UsageError if the space is not supported.
    """
    return networks.count_outputs(describe_actions(actions, "") | {"bins": bins})


def make_module(network: Mapping[str, Any]) -> MLP | ConvLSTM:
    """Make the described module; raise KeyError or TypeError if the description is damaged."""
    outputs = networks.count_outputs(network["actions"])
    if network["kind"] == "mlp":
        return MLP(network["inputs"], outputs, network["hidden"], network["activation"])
    return ConvLSTM(network["inputs"], outputs, vbn=network["vbn"])


def initial_theta(network: Mapping[str, Any], seed: int) -> FloatArray:
    """Return parameters by torch's default initialisation, drawn from `seed`: (P,) float32."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return flatten(network, make_module(network).state_dict())


def layer_shapes(network: Mapping[str, Any]) -> dict[str, torch.Size]:
    """Return the parameters' shapes by layer name, in the order in which theta holds them."""
    return _layer_shapes(json.dumps(network))


@functools.cache  # every checkpoint asks for them
def _layer_shapes(network: str) -> dict[str, torch.Size]:
    described = json.loads(network)
    if described["kind"] == "own":
        return {name: torch.Size(shape) for name, shape in described["shapes"].items()}
    with torch.device("meta"):  # shapes alone: nothing is allocated or drawn
        module = make_module(described)
    return {name: tensor.shape for name, tensor in module.state_dict().items()}


def flatten(network: Mapping[str, Any], parameters: Mapping[str, Any]) -> FloatArray:
    """Return theta: (P,) float32 from parameters by layer name.

    Raise ValueError if names or shapes are not those of the network, or a value is not finite.
    """
    shapes = layer_shapes(network)
    odd = sorted(map(str, set(parameters) ^ set(shapes)))
    if odd:
        whose = f"{network['kind']} network" if network["kind"] != "own" else network["net"]
        raise ValueError(f"its layers are not those of {whose}: {odd}")
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
    """Return copies of theta's parts by layer name: the inverse of `flatten`."""
    shapes = layer_shapes(network)
    parts = torch.from_numpy(theta).split([shape.numel() for shape in shapes.values()])
    return {
        name: part.reshape(shape).clone()
        for (name, shape), part in zip(shapes.items(), parts, strict=True)
    }
