"""An environment whose single episode lasts for hours: `tests.slow:Slow-v0`."""

import time
from typing import Any

import gymnasium
import numpy as np


class Slow(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, **keywords: Any) -> tuple[np.ndarray, dict[str, Any]]:
        return np.zeros(3, np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        time.sleep(0.1)
        return np.zeros(3, np.float32), 0.0, False, False, {}


gymnasium.register("Slow-v0", "tests.slow:Slow")
