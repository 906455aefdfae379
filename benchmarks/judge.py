"""Whether a task is learned, by fresh episodes of a policy of any library."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import numpy as np

EPISODES, FIRST, SEED = 100, 5, 1_000_000  # of an evaluation
PATIENCE = 1.05  # an evaluation is made whenever training has taken so many times as long

Act = Callable[[np.ndarray], np.ndarray]  # (N, ...) observations -> N actions


class Job(NamedTuple):
    """What to learn, with a library's settings."""

    task: str
    seed: int
    settings: dict[str, Any]

    def make(self) -> gymnasium.Env:
        """Return the environment as it is."""
        return gymnasium.make(self.task)


def play(job: Job, act: Act, seeds: range) -> list[float]:
    """Return the returns of an episode for each seed; they are played side by side."""
    envs = {seed: job.make() for seed in seeds}
    observations = {seed: env.reset(seed=seed)[0] for seed, env in envs.items()}
    returns = dict.fromkeys(seeds, 0.0)
    while envs:
        actions = act(np.stack([observations[seed] for seed in envs]))
        for (seed, env), action in zip([*envs.items()], actions, strict=True):
            observations[seed], reward, terminated, truncated, _ = env.step(action)
            returns[seed] += float(reward)
            if terminated or truncated:
                envs.pop(seed).close()
    return [*returns.values()]


class Over(Exception):  # noqa: N818 - it ends a run as planned
    """The target is reached, or the time is up."""


class Judge:
    """Evaluate a policy after an update, if training took PATIENCE times as long as before.

    target: of the mean of EPISODES fresh episodes. limit: seconds of training.
    """

    def __init__(self, job: Job, target: float, limit: float) -> None:
        self._job, self._target, self._limit = job, target, limit
        self._begin, self._due = time.perf_counter(), 0.0
        self.judging, self.solved = 0.0, False

    def __call__(self, act: Act) -> None:
        """Raise Over if the target is reached or the time is up."""
        now = time.perf_counter()
        trained = now - self._begin - self.judging
        if trained >= self._due:
            self._due = trained * PATIENCE
            returns = play(self._job, act, range(SEED, SEED + FIRST))
            # Five episodes may show that a hundred are not worth their time.
            if np.mean(returns) + 2 * np.std(returns) / np.sqrt(FIRST - 1) >= self._target:
                returns += play(self._job, act, range(SEED + FIRST, SEED + EPISODES))
                self.solved = bool(np.mean(returns) >= self._target)
            self.judging += time.perf_counter() - now
        if self.solved or trained > self._limit:
            raise Over
