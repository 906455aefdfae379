"""Plays tasks in this process, with one environment and one actor."""

from typing import Any, NamedTuple

import numpy as np

from es.algorithm.noise import DoubleArray, draw, perturb
from es.errors import TaskError, episode_trace, is_interrupt, summary_of
from es.rollouts.episode import Environment, as_number, close, rollout
from es.rollouts.tasks import Pool, Progress, Recipe, Results, Snapshot, Task, each_task

NOTHING = np.zeros((2, 0))


class Played(NamedTuple):
    """The fields of a result after those of its task; see `es.rollouts.tasks.result_type`."""

    episode_return: float
    clipped_return: float
    steps: int
    observed: DoubleArray


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

    def play(self, snapshot: Snapshot, task: Task) -> Played:
        """Play a task's episode with its perturbation of the snapshot's parameters."""
        theta, sigma, statistics, relative_sigma = snapshot
        if self._perturbed.size != theta.size:
            self._perturbed, self._noise = np.empty_like(theta), np.empty_like(theta)
        if task.sign and task.noise_seed != self._noise_seed:
            draw(task.noise_seed, self._noise, self._param_fraction)
            self._noise_seed = task.noise_seed
        perturb(theta, self._noise, task.sign * sigma, self._perturbed, relative_sigma)
        self.actor.bind(self._perturbed, statistics)
        noise_seeds = (task.noise_seed, task.episode_seed) if task.sign else None
        episode_return, steps = rollout(
            self.env, self.actor, task.episode_seed, self._cap(task.cap), noise_seeds
        )
        clipped = self._clipped.total if self._clipped else episode_return
        observed = self.actor.observed()
        return Played(episode_return, clipped, steps, NOTHING if observed is None else observed)


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


class InProcessPool(Pool):
    """Plays every task in this process, one after the other."""

    def __init__(self, recipe: Recipe) -> None:
        self._player = Player(recipe)

    def results(self, progress: Progress | None = None) -> Results:
        """Play the submitted tasks; raise TaskError at the first exception."""
        snapshot, tasks = self._submitted
        results = snapshot.results(len(tasks))
        for number, (_, _, task) in enumerate(each_task(tasks)):
            try:
                results[number] = 0, number, *self._player.play(snapshot, task)
            except BaseException as error:
                if is_interrupt(error):
                    raise
                message = f"{task} failed ({summary_of(error)})"
                raise TaskError(message, episode_trace(error)) from error
            if progress:
                progress(number + 1)
        return results

    def describe(self) -> str:
        """Return that there are no workers."""
        return "no workers"

    def close(self) -> None:
        """Close the environment."""
        close(self._player.env)
