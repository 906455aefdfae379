"""What plays tasks in a process: its environment, its actor, and their buffers."""

import numpy as np

from es.noise import draw, perturb
from es.rollouts.rollout import Recipe, Result, Snapshot, Task, rollout

MOST_KEPT = 50_000  # random numbers; those of larger networks take little of an episode's time


class Player:
    """A process's environment and actor, and the buffers for noise and perturbed parameters."""

    def __init__(self, recipe: Recipe) -> None:
        self.env = recipe.make_env()
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
        return Result(task.index, *episode, self.actor.observed())
