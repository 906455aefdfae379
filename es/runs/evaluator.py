"""Plays a run's episodes: those of its perturbations, and evaluations of its policy."""

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from es.algorithm.population import Population, group_by_perturbation, mean_and_std
from es.algorithm.strategy import Perturbation
from es.errors import ClusterError, RunError
from es.interrupts import Interrupts
from es.rollouts.rollout import Result, Snapshot, Task, evaluation_tasks, training_tasks
from es.runs.start import Run


class Evaluation(NamedTuple):
    """Mean and standard deviation of the returns of the policy after `update` updates."""

    update: int
    mean: float
    std: float


class Evaluator:
    """Plays with the current parameters of a run; the user may interrupt it."""

    def __init__(self, run: Run, interrupts: Interrupts) -> None:
        self._run, self._interrupts = run, interrupts
        self._last: Evaluation | None = None
        self._steps, self._since = 0, time.monotonic()  # for the speed

    def play_perturbations(
        self, perturbations: Sequence[Perturbation], cap: int
    ) -> tuple[list[Result], Population]:
        """Play the perturbations, then the unperturbed parameters, for `cap` steps at most."""
        config, strategy = self._run.config, self._run.strategy
        update, episodes = strategy.update, config.episodes_per_perturbation
        tasks = training_tasks(
            strategy.seed, update, perturbations, cap, episodes, config.episode_seeding
        )
        results = self._play(tasks, f"update {update + 1}")
        with self._naming_environment():
            return results, group_by_perturbation(results, episodes, config.reward_shift)

    def evaluate(self, update: int) -> Evaluation:
        """Play --eval-episodes fresh episodes with the policy, once after each update."""
        if self._last is None or self._last.update != update:
            config, episodes = self._run.config, self._run.config.eval_episodes
            tasks = evaluation_tasks(
                self._run.strategy.seed, update, episodes, config.max_episode_length
            )
            results = self._play(tasks, f"evaluation after {update} updates")
            mean, std = mean_and_std([result.episode_return for result in results])
            self._last = Evaluation(update, mean, std)
            self._run.monitor.console.say(
                f"Evaluation after {update} updates: mean {mean:.2f}, standard deviation {std:.2f} "
                f"over {episodes} fresh episodes\n"
            )
        return self._last

    def reach_target(self, score: float, update: int) -> dict[str, float] | None:
        """Return the evaluation in which the policy reaches --target-return, or None.

        score: the unperturbed return; if it is below the target, nothing is played.
        """
        target = self._run.config.target_return
        if target is None or not score >= target:  # the score may be NaN
            return None
        _, mean, std = self.evaluate(update)
        return {"target": target, "mean": mean, "std": std} if target <= mean < math.inf else None

    def speed(self) -> float:
        """Return the steps per second of all episodes since the last call."""
        before, self._since = self._since, time.monotonic()
        steps, self._steps = self._steps, 0
        return steps / (self._since - before)

    def _play(self, tasks: Sequence[Task], name: str) -> list[Result]:
        """Return the tasks' results, in task order."""
        strategy, normalizer, console = (
            self._run.strategy, self._run.normalizer, self._run.monitor.console
        )  # fmt: skip
        console.begin(name, len(tasks))
        statistics = normalizer.statistics() if normalizer else None
        snapshot = Snapshot(strategy.theta, strategy.sigma, statistics)
        with self._naming_environment(), self._interrupts.allowed():
            results = self._run.pool.evaluate(snapshot, tasks, console.progress)
        self._steps += sum(result.steps for result in results)
        return results

    @contextmanager
    def _naming_environment(self) -> Iterator[None]:
        try:
            yield
        except ClusterError:  # not the environment's fault
            raise
        except RunError as error:
            raise RunError(f"--env-name {self._run.config.env_name}: {error}") from error
