r"""A small convolutional network for Atari games. For Pong, it is a hundredth of the built-in one.

In this folder: python ../main.py --env-name PongDeterministic-v4 --net vision:SmallVision \
    --net-kwargs width=8 --workers auto --optimizer adam --lr 0.02 --max-minutes 60
"""

from typing import Any

import torch
from torch import Tensor, nn

from es import count_outputs


class SmallVision(nn.Module):
    """Two convolutions over an image and the one before it, which shows what moves, and a layer.

    An image is (1, 42, 42): gray, shrunk and normalised.
    """

    def __init__(self, observations: Any, actions: Any, width: int = 8) -> None:
        super().__init__()
        channels = observations.shape[0]
        self.look = nn.Conv2d(2 * channels, width, kernel_size=6, stride=3)  # 42 -> 13 a side
        self.combine = nn.Conv2d(width, 2 * width, kernel_size=3, stride=2)  # 13 -> 6
        self.choice = nn.Linear(2 * width * 6 * 6, count_outputs(actions))

    def forward(self, observation: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return an output for each action, and the image, which is the state of the next step."""
        before = observation if state is None else state
        x = torch.relu(self.look(torch.cat([observation, observation - before])))
        x = torch.relu(self.combine(x))
        return self.choice(x.flatten()), observation
