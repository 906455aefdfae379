"""What plays tasks in a process: its environment, its actor, and their buffers."""

from typing import Any

import numpy as np

from es.algorithm.noise import draw, perturb
from es.rollouts.rollout import (
    Environment,
    Recipe,
    Result,
    Snapshot,
    Task,
    as_number,
    rollout,
)

MOST_KEPT = 50_000  # random numbers; those of larger networks take little of an episode's time


class Player:
    """A process's environment and actor, and the buffers for noise and perturbed parameters."""

    def __init__(self, recipe: Recipe) -> None:
        self.env = recipe.make_env()
        self._clipped = None
        if recipe.reward_clip:
            self.env = self._clipped = SumClipped(self.env, *recipe.reward_clip)
        self.actor = recipe.make_actor()
        self._cap, self._param_fraction = recipe.cap, recipe.param_fraction
        self._perturbed = self._noise = np.empty(0, np.float32)
        self._noise_seed = -1  # of the noise that is kept, for a mirrored twin

    def play(self, snapshot: Snapshot, task: Task) -> Result:
        """Play a task's episode with its perturbation of the snapshot's parameters."""
        theta, sigma, statistics, spread = snapshot
        if self._perturbed.size != theta.size:
            self._perturbed = self._noise = np.empty_like(theta)
            if theta.size <= MOST_KEPT:
                self._noise = np.empty_like(theta)
        if task.sign and task.noise_seed != self._noise_seed:
            draw(task.noise_seed, self._noise, self._param_fraction)
            self._noise_seed = task.noise_seed if theta.size <= MOST_KEPT else -1
        perturb(theta, self._noise, task.sign * sigma, self._perturbed, spread)
        self.actor.bind(self._perturbed, statistics)
        noise_seeds = (task.noise_seed, task.episode_seed) if task.sign else None
        episode = rollout(self.env, self.actor, task.episode_seed, self._cap(task.cap), noise_seeds)
        clipped = self._clipped.total if self._clipped else None
        return Result(task.index, *episode, self.actor.observed(), clipped)


class SumClipped:
    """An environment that adds up an episode's rewards, each clipped to [low, high], in `total`."""

    def __init__(self, env: Environment, low: float, high: float) -> None:
        self._env, self._low, self._high = env, low, high
        self.total = 0.0
        self.close = env.close

    def reset(self, *, seed: int | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        self.total = 0.0
        return self._env.reset(seed=seed)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Make a step, whose reward stays as it is."""
        outcome = self._env.step(action)
        self.total += min(max(as_number(outcome[1]), self._low), self._high)
        return outcome
