"""Networks of the user's own, as the tests need them: `tests.nets:Plain`."""

from typing import Any

import torch
from torch import Tensor, nn

from es import count_outputs


class Plain(nn.Module):
    """The program's MLP, written by a user."""

    def __init__(self, observations: Any, actions: Any, width: int = 64, extra: int = 0) -> None:
        super().__init__()
        self.linear1 = nn.Linear(observations.shape[0], width)
        self.linear2 = nn.Linear(width, width)
        self.actor_linear = nn.Linear(width, count_outputs(actions) + extra)

    def forward(self, observation: Tensor, state: Any) -> Tensor:
        assert observation.dtype == torch.float32
        assert state is None
        x = torch.selu(self.linear1(observation))
        return self.actor_linear(torch.selu(self.linear2(x)))


class Rich(nn.Module):
    """All that a module may have: memory, a buffer, frozen, lazy and shared layers, chance.

    It changes the buffer as it plays, and keeps the observation itself in its memory.
    """

    features: Tensor
    steps: Tensor

    def __init__(self, observations: Any, actions: Any, units: int = 8) -> None:
        super().__init__()
        size = observations.shape[0]
        self.register_buffer("features", torch.randn(size, size))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64), persistent=False)
        self.frozen = nn.Linear(size, units).requires_grad_(False)
        self.cell = nn.GRUCell(units, units)
        self.again = self.cell
        self.norm = nn.BatchNorm1d(units)
        self.head = nn.LazyLinear(count_outputs(actions))
        self.noise = nn.Dropout(0.5)

    def forward(self, observation: Tensor, state: Any) -> tuple[Tensor, Any]:
        memory, before = state or (None, observation)
        self.steps += 1
        x = torch.tanh(self.frozen(self.features @ (observation + before)))
        memory = self.again(x, memory)
        chance = 0.1 * torch.rand(()) + 0.01 * self.steps
        seen = torch.cat([self.norm(self.noise(memory)[None])[0], chance[None]])
        return self.head(seen), (memory, observation)


class Grid(nn.Module):
    """Convolves observations in their own shape: (channels, rows, columns)."""

    def __init__(self, observations: Any, actions: Any) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(observations.shape[0], 4, 3)
        self.head = nn.LazyLinear(count_outputs(actions))

    def forward(self, observation: Tensor, state: Any) -> Tensor:
        return self.head(torch.relu(self.convolution(observation)).flatten())


class Parts(nn.Module):
    """Looks at a dict of tensors."""

    def __init__(self, observations: Any, actions: Any) -> None:
        super().__init__()
        self.keys = sorted(observations)
        self.head = nn.LazyLinear(count_outputs(actions))

    def forward(self, observation: dict[str, Tensor], state: Any) -> Tensor:
        return self.head(torch.cat([observation[key].flatten() for key in self.keys]))


class Exported(nn.Module):
    """Gives other outputs in an exported file."""

    def __init__(self, observations: Any, actions: Any) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.ones(count_outputs(actions)))

    def forward(self, observation: Tensor, state: Any) -> Tensor:
        return -self.bias if torch.compiler.is_exporting() else self.bias


class Failing(nn.Module):
    """Goes wrong where a test wants."""

    def __init__(self, observations: Any, actions: Any, place: str) -> None:
        super().__init__()
        self.place, self.calls = place, 0
        self.head = nn.Linear(observations.shape[0], count_outputs(actions))
        if place == "frozen":
            self.requires_grad_(False)
        if place == "reserved":
            self.optimizer = nn.Linear(1, 1)

    def forward(self, observation: Tensor, state: Any) -> Any:
        self.calls += 1
        if self.place == "forward" or (self.place == "later" and self.calls > 3):
            raise KeyError("boom")
        return "outputs" if self.place == "text" else self.head(observation)


def no_module(observations: Any, actions: Any) -> str:
    """What is no torch.nn.Module."""
    return "a text"


word = "a text"
