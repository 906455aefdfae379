"""Environments with all kinds of spaces, registered by importing this module."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Strange(gymnasium.Env):
    """Pays the mean of an action that its space must hold; shows samples."""

    def __init__(self, observations: spaces.Space, actions: spaces.Space) -> None:
        self.observation_space, self.action_space = observations, actions

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        return self.observation_space.sample(), float(np.mean(action)), False, False, {}


BOX = spaces.Box(-1, 1, (3,))
SPACES: dict[str, tuple[spaces.Space, spaces.Space]] = {
    "MultiDiscrete": (BOX, spaces.MultiDiscrete(np.array([[2, 3], [4, 5]]))),
    "MultiBinary": (BOX, spaces.MultiBinary((2, 2))),
    "Start": (BOX, spaces.Discrete(3, start=5)),
    "Matrix": (BOX, spaces.Box(-0.4, 0.4, (2, 3))),
    "Doubles": (spaces.Box(-1, 1, (2, 2), np.float64), spaces.Box(-3, 7, (2,), np.float64)),
    "Parts": (
        spaces.Dict(a=spaces.Discrete(4), b=spaces.Tuple([BOX, spaces.MultiBinary(3)])),
        spaces.Discrete(2),
    ),
    "Digits": (spaces.MultiDiscrete([3, 4]), spaces.Discrete(2)),
    "ChannelsFirst": (spaces.Box(0, 255, (3, 50, 60), np.uint8), spaces.Discrete(2)),
    "Picture": (spaces.Box(0, 255, (30, 40, 4), np.uint8), spaces.Box(-1, 1, (2,))),
    "Unbounded": (BOX, spaces.Box(-np.inf, np.inf, (2,))),
    "Words": (spaces.Text(9), spaces.Discrete(2)),
}
for name, (observations, actions) in SPACES.items():
    gymnasium.register(
        f"{name}-v0",
        entry_point="tests.strange:Strange",
        kwargs={"observations": observations, "actions": actions},
        max_episode_steps=4,
    )
