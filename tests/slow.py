"""Environments that take their time: `tests.slow:Slow-v0` and `tests.slow:Patient-v0`."""

import threading
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np


class Slow(gymnasium.Env):
    """Has a single episode, without end, of steps of 100 ms."""

    observation_space = gymnasium.spaces.Box(-1, 1, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, **keywords: Any) -> tuple[np.ndarray, dict[str, Any]]:
        return np.zeros(3, np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        time.sleep(0.1)
        return np.zeros(3, np.float32), 0.0, False, False, {}


gymnasium.register("Slow-v0", "tests.slow:Slow")


class Patient(gymnasium.Env):
    """Pays for one of two actions, for 5 steps; waits once while there is a file named `hold`.

    It does so in step 150, of which an update with --n 2 takes 15, for two minutes at most.
    """

    observation_space = gymnasium.spaces.Box(-1, 1, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self) -> None:
        self.played = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.steps = 0
        return self.np_random.uniform(-1, 1, 3).astype(np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.played += 1
        self.steps += 1
        deadline = time.monotonic() + 120
        while self.played == 150 and Path("hold").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        observation = self.np_random.uniform(-1, 1, 3).astype(np.float32)
        return observation, float(action), self.steps == 5, False, {}


gymnasium.register("Patient-v0", "tests.slow:Patient")


class Lasting(gymnasium.Wrapper):
    """Starts a thread in the fifth episode. It lasts for 30 seconds, and then makes a file."""

    def __init__(self, env: gymnasium.Env, file: str) -> None:
        super().__init__(env)
        self.file, self.episodes = Path(file), 0

    def reset(self, **keywords: Any) -> tuple[Any, dict[str, Any]]:
        self.episodes += 1
        if self.episodes == 5:
            threading.Thread(target=self.last).start()
        return super().reset(**keywords)

    def last(self) -> None:
        time.sleep(30)
        self.file.touch()
