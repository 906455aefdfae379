"""Environments with all kinds of spaces, registered by importing this module."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Strange(gymnasium.Env):
    """Pays the mean of an action that its space must hold; shows samples."""

    def __init__(self, observations: spaces.Space, actions: spaces.Space | None = None) -> None:
        self.observation_space = observations
        self.action_space = actions or spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        return self.observation_space.sample(), float(np.mean(action)), False, False, {}


class Crowded(Strange):
    """Has attributes that others have for other things, pays arrays of one number, and is seen."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}  # noqa: RUF012 (as Gymnasium's own)
    world = "its own"

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(BOX, spaces.Box(0, 1, (1,)))
        self.render_mode = render_mode

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, *rest = super().step(action)
        return observation, np.array([1 + reward]), *rest

    def render(self) -> Any:
        return np.zeros((32, 32, 3), np.uint8)

    def _destroy(self) -> None:
        raise AssertionError("not the program's to call")


class Weighted(gymnasium.Wrapper):
    """Pays two numbers, weighted: the reward and the step's cost."""

    def __init__(self, env: gymnasium.Env, weight: np.ndarray, cost: float = 0) -> None:
        super().__init__(env)
        self._weight, self._cost = weight, cost

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, reward, *rest = self.env.step(action)
        return observation, float(self._weight.dot([float(reward), self._cost])), *rest


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
    "Scene": (
        spaces.Dict(
            camera=spaces.Box(0, 255, (40, 50, 3), np.uint8),
            grid=spaces.Box(0, 9, (2, 3, 4)),
            heading=spaces.Discrete(4),
            switches=spaces.MultiBinary(3),
        ),
        spaces.Discrete(3),
    ),
    "Planes": (spaces.Box(0, 9, (2, 5, 7), np.int64), spaces.Discrete(3)),
    "Digits": (spaces.MultiDiscrete([3, 4]), spaces.Discrete(2)),
    "ChannelsFirst": (spaces.Box(0, 255, (3, 50, 60), np.uint8), spaces.Discrete(2)),
    "Picture": (spaces.Box(0, 255, (30, 40, 4), np.uint8), spaces.Box(-1, 1, (2,))),
    "Whole": (BOX, spaces.Box(-3, 9, (2, 2), np.int64)),
    "Mission": (
        spaces.Dict(
            direction=spaces.Discrete(4),
            image=spaces.Box(0, 255, (7, 7, 3), np.uint8),
            mission=spaces.Text(9),
        ),
        spaces.Discrete(3),
    ),
    "Screen": (
        spaces.Dict(numbers=BOX, screen=spaces.Box(0, 255, (30, 40, 3), np.uint8)),
        spaces.Box(-1, 1, (2,)),
    ),
    "Unbounded": (BOX, spaces.Box(-np.inf, np.inf, (2,))),
    "Words": (spaces.Text(9), spaces.Discrete(2)),
}
gymnasium.register("Crowded-v0", "tests.strange:Crowded", max_episode_steps=4)
for name, (observations, actions) in SPACES.items():
    gymnasium.register(
        f"{name}-v0",
        entry_point="tests.strange:Strange",
        kwargs={"observations": observations, "actions": actions},
        max_episode_steps=4,
    )
