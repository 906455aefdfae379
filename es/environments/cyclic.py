"""CyclicMDP: a long chain of right choices, which ES learns at once, unlike most others."""

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

ACTIONS, RIGHT = 3, 1
MOST_STATES = 4096  # each has an observation of that size
MOST_PAID = 1e30  # in a step, so that no return is infinite
CELL = 100  # pixels of a picture's squares
DARK, LIGHT = 60, 240


class CyclicMDP(gymnasium.Env):
    """States in a ring: action 1 moves on and pays the state's reward.

    Any other action pays -1 and ends the episode. states: their number. rewards: of each state; by
    default 1, and 2 in the last one. horizon: steps until the episode is truncated. Observation:
    (states,) float32, one-hot. Raise ValueError for arguments that do not fit.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}  # noqa: RUF012 (Gymnasium's way)

    def __init__(
        self,
        states: int = 3,
        rewards: Sequence[float] | None = None,
        horizon: int = 1500,
        render_mode: str | None = None,
    ) -> None:
        if not all(type(number) is int and number >= 1 for number in (states, horizon)):
            raise ValueError("states and horizon must be whole numbers, 1 or more")
        if states > MOST_STATES:
            raise ValueError(f"states must be at most {MOST_STATES}")
        if isinstance(rewards, str):
            raise ValueError("rewards must be a list of numbers, such as [1,1,2]")
        given = [1] * (states - 1) + [2] if rewards is None else rewards
        self._rewards = [float(reward) for reward in given]
        if len(self._rewards) != states:
            raise ValueError(f"rewards has {len(self._rewards)} numbers for {states} states")
        if not all(abs(reward) <= MOST_PAID for reward in self._rewards):
            raise ValueError(f"rewards must be from {-MOST_PAID:g} to {MOST_PAID:g}")
        self._horizon, self.render_mode = horizon, render_mode
        self.observation_space = spaces.Box(0, 1, (states,), np.float32)
        self.action_space = spaces.Discrete(ACTIONS)
        self._observations = np.eye(states, dtype=np.float32)
        self._state = self._steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start in the first state."""
        super().reset(seed=seed)
        self._state = self._steps = 0
        return self._observations[0].copy(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Move on by the right action, or end the episode."""
        self._steps += 1
        right, reward = action == RIGHT, -1.0
        if right:
            reward = self._rewards[self._state]
            self._state = (self._state + 1) % len(self._rewards)
        truncated = self._steps >= self._horizon
        return self._observations[self._state].copy(), reward, not right, truncated, {}

    def render(self) -> Any:
        """Return a row of squares, the state's bright: (100, 100 * states, 3) uint8."""
        row = np.where(np.arange(len(self._rewards)) == self._state, LIGHT, DARK)
        picture = np.kron(row, np.ones((CELL, CELL)))
        picture[:, ::CELL] = 0
        return np.dstack([picture] * 3).astype(np.uint8)
