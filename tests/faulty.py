"""An environment that goes wrong in some of its episodes: `tests.faulty:Faulty-v0`."""

import ctypes
import math
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np


class Faulty(gymnasium.Env):
    """Pays for one of two actions, and for luck, for 5 steps.

    fault: what happens in the third step of unlucky episodes, a `share` of all: nan, inf, unseen
    (an observation of NaN), raise, crash or hang. once: a file, with which it does not happen, and
    which is made when it does.
    """

    observation_space = gymnasium.spaces.Box(-1, 1, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, fault: str = "", share: float = 0.3, once: str = "") -> None:
        self.fault, self.share, self.once = fault, share, Path(once) if once else None

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.steps = 0
        self.unlucky = self.np_random.random() < self.share
        return self.observe(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        observation, reward = self.observe(), action + self.np_random.random()
        if self.steps == 3 and self.unlucky and not (self.once and self.once.exists()):
            if self.once:
                self.once.touch()
            if self.fault == "raise":
                raise ValueError("unlucky")
            if self.fault == "crash":
                ctypes.string_at(0)
            if self.fault == "hang":
                time.sleep(3600)
            if self.fault == "unseen":
                observation = np.full_like(observation, np.nan)
            reward = {"nan": math.nan, "inf": math.inf}.get(self.fault, reward)
        return observation, reward, self.steps == 5, False, {}

    def observe(self) -> np.ndarray:
        return self.np_random.uniform(-1, 1, 3).astype(np.float32)


gymnasium.register("Faulty-v0", "tests.faulty:Faulty")
