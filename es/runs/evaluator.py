"""Plays a run's episodes: those of its perturbations, and evaluations of its policy."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from es.algorithm.shaping import (
    Population,
    group_by_perturbation,
    mean_and_std,
    perturbations_needed,
)
from es.errors import ClusterError, Interrupts, LimitError, RunError, counted
from es.rollouts.tasks import (
    UNPERTURBED,
    Results,
    Snapshot,
    Tasks,
    evaluation_tasks,
    training_tasks,
)
from es.runs.start import Run

SHARE, LEAST = 5, 5  # of an evaluation: a fifth of its episodes, at least 5, may show that it fails


class Evaluation(NamedTuple):
    """The returns of the policy after `update` updates, their mean and standard deviation."""

    update: int
    returns: list[float]
    mean: float
    std: float


class Evaluator:
    """Plays with the current parameters of a run; the user may interrupt it.

    last: the last evaluation, if there was one.
    """

    def __init__(self, run: Run, interrupts: Interrupts) -> None:
        self._run, self._interrupts = run, interrupts
        self.last: Evaluation | None = None
        self._submitted: Tasks | None = None  # which are being played already
        self._steps, self._since = 0, time.monotonic()  # for the speed

    def play_perturbations(self, cap: int) -> tuple[Results, Population]:
        """Play an update's perturbations and the unperturbed parameters, `cap` steps at most.

        With --frames-per-update, ask for further perturbations until they have seen so many steps.
        The population's unperturbed return is that of whole episodes, whatever the cap.
        """
        config, strategy = self._run.config, self._run.strategy
        name, episodes = f"update {strategy.update + 1}", config.episodes_per_perturbation
        count = strategy.n
        if self._submitted is None:
            self._submit(self._first_tasks(cap))
        results = self._results(name)
        beside = len(results) - (count + 1) * episodes  # whole ones of the unperturbed parameters
        whole, results = results[:beside], results[beside:]
        perturbed, unperturbed = results[:-episodes], results[-episodes:]
        if config.frames_per_update:
            steps = int(perturbed["steps"].sum())
            wanted, most = config.frames_per_update, config.n_most
            while count < (count := perturbations_needed(count, steps, wanted, most)):
                before = len(perturbed) + episodes
                self._submit(self._tasks(count, cap)[before:])
                further = self._results(name, before)
                steps += int(further["steps"].sum())
                perturbed = np.concatenate([perturbed, further])
        results = np.concatenate([perturbed, unperturbed])
        with self._naming_environment():
            population = group_by_perturbation(
                results["episode_return"],
                results["steps"],
                episodes,
                clipped=results["clipped_return"],
                reward_shift=config.reward_shift,
            )
        if len(whole):
            mean, _ = mean_and_std(whole["episode_return"])
            population = population._replace(unperturbed=mean)
        return results, population

    def prepare(self, cap: int) -> None:
        """Have the next update's first perturbations played while the master does other things."""
        self._submit(self._first_tasks(cap))

    def _first_tasks(self, cap: int) -> Tasks:
        """Return the tasks of an update's first perturbations.

        If these are capped, the unperturbed episodes to their ends come before them: they last
        longest, and no worker should be left alone with one.
        """
        tasks, config = self._tasks(self._run.strategy.n, cap), self._run.config
        most = config.max_episode_length
        if cap == most:
            return tasks
        whole = tasks[-config.episodes_per_perturbation :].copy()
        whole["cap"] = most
        return np.concatenate([whole, tasks])

    def _tasks(self, count: int, cap: int) -> Tasks:
        """Return the tasks of an update of `count` perturbations: those of fewer come first."""
        strategy, config = self._run.strategy, self._run.config
        members: list[tuple[int, int]] = [*strategy.ask(count)]
        members.insert(strategy.n, UNPERTURBED)
        return training_tasks(
            strategy.seed, strategy.update, members, cap,
            config.episodes_per_perturbation, config.episode_seeding,
        )  # fmt: skip

    def evaluate(self, update: int) -> Evaluation:
        """Play --eval-episodes fresh episodes with the policy, once after each update."""
        if self.last is None or self.last.update != update:
            self.last = self._evaluate(update, "evaluation", 0)
        return self.last

    def _evaluate(
        self, update: int, name: str, first: int, target: float = -math.inf
    ) -> Evaluation:
        """Play --eval-episodes episodes, of which `first` is the first.

        Stop early if some of them show that the mean will not reach the target.
        """
        config, seed = self._run.config, self._run.strategy.seed
        count = config.eval_episodes
        tasks = evaluation_tasks(seed, update, first + count, config.max_episode_length)[first:]
        name, few = f"{name} after {counted(update, 'update')}", max(LEAST, count // SHARE)
        parts = (tasks,) if target == -math.inf else (tasks[:few], tasks[few:])
        returns, start = list[float](), time.monotonic()
        for part in parts:
            self._submit(part)
            returns += self._results(name, len(returns), count)["episode_return"].tolist()
            mean, std = mean_and_std(returns)
            # By chance, a mean strays from the true one by more than this once in twenty times.
            if len(returns) == count or mean + 2 * std / math.sqrt(few - 1) < target:
                break
        played = "" if len(returns) == count else f"the first {len(returns)} of "
        self._run.monitor.console.say(
            f"{name[0].upper()}{name[1:]}: mean {mean:.2f}, standard deviation {std:.2f} "
            f"over {played}{counted(count, 'fresh episode')}, in {time.monotonic() - start:.2f} s\n"
        )
        return Evaluation(update, returns, mean, std)

    def reach_target(self, update: int) -> dict[str, float] | None:
        """Return the evaluation in which the policy reaches --target-return, or None.

        A second one has to confirm the first, which may be lucky if it is asked again and again.
        """
        config, last = self._run.config, self.last
        target, count = config.target_return, config.eval_episodes
        assert target is not None
        if last is None or last.update != update:
            last = self._evaluate(update, "evaluation", 0, target)
            if len(last.returns) == count:
                self.last = last
        if not target <= last.mean < math.inf:
            return None
        second = self._evaluate(update, "second evaluation", count, target)
        if not target <= second.mean < math.inf:
            return None
        return {"target": target, "mean": last.mean, "std": last.std, "second_mean": second.mean}

    def speed(self) -> float:
        """Return the steps per second of all episodes since the last call."""
        before, self._since = self._since, time.monotonic()
        steps, self._steps = self._steps, 0
        return steps / (self._since - before)

    def _submit(self, tasks: Tasks) -> None:
        """Start to play tasks; `_results` waits for them."""
        with self._naming_environment():
            self._run.pool.submit(self._snapshot(), tasks)
        self._submitted = tasks

    def _results(self, name: str, before: int = 0, total: int = 0) -> Results:
        """Return the results of the submitted tasks, in task order.

        name: of the batch that they are part of. before, total: its episodes that have been played
        already, and all that are known of, for the console.
        """
        assert self._submitted is not None
        console = self._run.monitor.console
        console.begin(name, max(total, before + len(self._submitted)))
        console.progress(before)

        def progress(done: int) -> None:
            console.progress(before + done)

        with self._naming_environment(), self._interrupts.allowed():
            results = self._run.pool.results(progress)
        self._submitted = None
        self._steps += int(results["steps"].sum())
        return results

    def _snapshot(self) -> Snapshot:
        strategy, normalizer = self._run.strategy, self._run.normalizer
        statistics = normalizer.statistics() if normalizer else None
        return Snapshot(strategy.theta, strategy.sigma, statistics, strategy.relative_sigma)

    @contextmanager
    def _naming_environment(self) -> Iterator[None]:
        try:
            yield
        except (ClusterError, LimitError):  # not the environment's fault
            raise
        except RunError as error:
            config = self._run.config
            whose = f"--env-name {config.env_name}" + (f" --net {config.net}" if config.net else "")
            raise RunError(f"{whose}: {error.message}", error.trace) from error
