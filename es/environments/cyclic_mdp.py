"""CyclicMDP: a long chain of right choices, which ES learns at once, unlike most others."""

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

NAME = "CyclicMDP-v0"
ACTIONS, RIGHT = 3, 1
CELL = 100  # pixels of a picture's squares
DARK, LIGHT = 60, 240


def register() -> None:
    """Register CyclicMDP-v0 with Gymnasium."""
    if NAME not in gymnasium.registry:
        gymnasium.register(NAME, entry_point="es.environments.cyclic_mdp:CyclicMDP")


class CyclicMDP(gymnasium.Env):
    """States in a ring: action 1 moves on and pays the state's reward.

    Any other action pays -1 and ends the episode. states: their number. rewards: of each state; by
    default 1, and 2 in the last one. horizon: steps until the episode is truncated. Observation:
    (states,) float32, one-hot. Raise ValueError if there is not one reward for each state.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}  # noqa: RUF012 (Gymnasium's way)

    def __init__(
        self,
        states: int = 3,
        rewards: Sequence[float] | None = None,
        horizon: int = 1500,
        render_mode: str | None = None,
    ) -> None:
        self._rewards = [*(rewards or [1] * (states - 1) + [2])]
        if len(self._rewards) != states:
            raise ValueError(f"rewards has {len(self._rewards)} numbers for {states} states")
        self._horizon, self.render_mode = horizon, render_mode
        self.observation_space = spaces.Box(0, 1, (states,), np.float32)
        self.action_space = spaces.Discrete(ACTIONS)
        self._observations = np.eye(states, dtype=np.float32)

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
            reward = float(self._rewards[self._state])
            self._state = (self._state + 1) % len(self._rewards)
        truncated = self._steps >= self._horizon
        return self._observations[self._state].copy(), reward, not right, truncated, {}

    def render(self) -> Any:
        """Return a row of squares, the state's bright: (100, 100 * states, 3) uint8."""
        row = np.where(np.arange(len(self._rewards)) == self._state, LIGHT, DARK)
        picture = np.kron(row, np.ones((CELL, CELL)))
        picture[:, ::CELL] = 0
        return np.dstack([picture] * 3).astype(np.uint8)
