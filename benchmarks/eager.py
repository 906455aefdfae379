"""The program's MLP with two layers of 256 units as a network of a user's own, in eager torch."""

from typing import Any

from torch import Tensor

from es import count_outputs, model


class MLP(model.MLP):
    """The module that the compiled actor is held to, made as --net makes one."""

    def __init__(self, observations: Any, actions: Any) -> None:
        super().__init__(observations.shape[0], count_outputs(actions), (256, 256))

    def forward(self, observation: Tensor, state: None = None) -> tuple[Tensor, None]:
        """Return the outputs."""
        return super().forward(observation)
