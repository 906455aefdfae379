"""The built-in networks as torch modules: the definition of record.

Layer names are the keys of every checkpoint, and of pytorch-es's. In training, the compiled actors
of `es.networks` play these networks. Tests compare them with the modules here. `es.networks`
describes the plain dicts from which every process makes the same network.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from es.algorithm.noise import FloatArray
from es.networks import outputs_needed, split


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


class ConvLSTM(nn.Module):
    """Four convolutions (42 -> 21 -> 11 -> 6 -> 3 pixels a side) and an LSTM cell of 256 units.

    vbn: virtual batch normalisation (Salimans et al. 2016, section 3.5, without the example's own
    share in the statistics, as in Salimans et al. 2017, section 2.2) between each convolution, then
    without a bias, and its activation. Observation: (1, 42, 42) float32; result: (outputs,).
    """

    def __init__(self, channels: int, outputs: int, *, vbn: bool = False) -> None:
        super().__init__()
        for number, inputs in enumerate((channels, 32, 32, 32), 1):
            conv = nn.Conv2d(inputs, 32, 3, stride=2, padding=1, bias=not vbn)
            self.add_module(f"conv{number}", conv)
            self.add_module(f"norm{number}", nn.BatchNorm2d(32) if vbn else nn.Identity())
        self.lstm = nn.LSTMCell(32 * 3 * 3, 256)
        self.actor_linear = nn.Linear(256, outputs)
        self.eval()  # normalise by the statistics that `refer_to` takes

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
                norm.running_var, norm.running_mean = torch.var_mean(x, (0, 2, 3), correction=0)
            x = functional.selu(norm(x))
        return x


def make_module(network: Mapping[str, Any]) -> MLP | ConvLSTM:
    """Make the described module."""
    outputs = outputs_needed(network["actions"])
    if network["kind"] == "mlp":
        return MLP(network["inputs"], outputs, network["hidden"], network["activation"])
    return ConvLSTM(network["inputs"], outputs, vbn=network["vbn"])


def with_shapes(network: Mapping[str, Any]) -> dict[str, Any]:
    """Return the description with the "shapes" of the module's parameters."""
    with torch.device("meta"):  # shapes alone: nothing is allocated or drawn
        module = make_module(network)
    shapes = {name: list(parameter.shape) for name, parameter in module.named_parameters()}
    return {**network, "shapes": shapes}


def initial_theta(network: Mapping[str, Any], seed: int) -> FloatArray:
    """Return parameters by torch's default initialisation, drawn from `seed`: (P,) float32."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return flatten(network, dict(make_module(network).named_parameters()))


def flatten(network: Mapping[str, Any], parameters: Mapping[str, Tensor]) -> FloatArray:
    """Return theta: (P,) float32 from parameters by name.

    Raise ValueError if names or shapes are not those of the network.
    """
    shapes = network["shapes"]
    if different := sorted(set(parameters) ^ set(shapes)):
        kind = network["net"] if network["kind"] == "custom" else f"{network['kind']} network"
        raise ValueError(f"its layers are not those of {kind}: {different}")
    for name, shape in shapes.items():
        if list(parameters[name].shape) != shape:
            found = tuple(parameters[name].shape)
            raise ValueError(f"{name} should have the shape {tuple(shape)}, not {found}")
    return torch.cat([parameters[name].detach().reshape(-1).float() for name in shapes]).numpy()


def unflatten(network: Mapping[str, Any], theta: FloatArray) -> dict[str, Tensor]:
    """Return copies of theta's parts by parameter name: the inverse of `flatten`."""
    parts = split(network, theta)
    return {name: torch.from_numpy(part.copy()) for name, part in parts.items()}
