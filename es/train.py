"""The master loop: ask for perturbations, evaluate them, tell their returns, report, checkpoint."""

from __future__ import annotations

import copy
import dataclasses
import math
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial

import torch

from es.algorithm.episode_limit import adaptive_cap, variable_cap
from es.algorithm.population import Population, group_by_perturbation
from es.config import Config
from es.envs import make_env
from es.errors import ClusterError, RunError
from es.interrupts import Interrupts
from es.model import unflatten
from es.policy import describe
from es.rendering.show_frames import make_drawn
from es.rendering.window import watching
from es.reports.record import Record, describe_population
from es.reports.terminal import Terminal
from es.rollouts.rollout import Result, Snapshot, Task, training_tasks
from es.runs import directory as rundir
from es.runs import finish
from es.runs.checkpoint import Checkpoint
from es.runs.restored import Restored
from es.runs.scoring import Evaluator
from es.runs.start import Run, start_run
from es.runs.versions import versions


def train(config: Config, restored: Restored, interrupts: Interrupts) -> int:
    """Train until an ending condition; return the exit status."""
    if isinstance(restored, Checkpoint) and not finish.evaluation_due(config, restored.counters):
        met = finish.target_met(config, restored) or finish.ending(config, restored.counters)
        if met:
            return finish.finished_already(config, met, interrupts)
    console = Terminal(silent=config.silent)
    with ExitStack() as stack:
        stack.callback(console.close)
        if config.seed is None:
            config = dataclasses.replace(config, seed=secrets.randbelow(2**31))
        setup, theta = describe(config, restored)
        if config.video_every:
            make = partial(make_env, setup.environment, "rgb_array")
            remedy = "give --video-every None"
            make_drawn(make, setup.environment["kwargs"], remedy).close()
        run = start_run(config, restored, setup, theta, console, stack)
        path = run.directory.path
        console.say(
            f"Num params in network: {run.strategy.theta.size}\nSeed: {run.config.seed}\n"
            f"Run directory: {path}\n"
        )
        trainer = Trainer(run, interrupts)
        interrupts.defer()
        console.follow(finish.run_limits(run.config, path, run.counters), run.pool.describe)
        interrupted, unwritten = finish.play_out(trainer.run, run.pool, run.monitor, interrupts)
        status, last_line = finish.conclude(
            run.config, trainer.counters, trainer.solved, path, interrupted, unwritten
        )
        console.say(f"Watch it: {finish.again(run.config, path / rundir.LATEST, *watching())}")
        console.close(last_line)
        return status


class Trainer:
    """A run in progress. What an update changes is in the strategy and the counters."""

    def __init__(self, run: Run, interrupts: Interrupts) -> None:
        self.config, self.setup, self.pool = run.config, run.setup, run.pool
        self.strategy, self.normalizer, self.counters = run.strategy, run.normalizer, run.counters
        self.monitor, self.interrupts = run.monitor, interrupts
        self.solved: dict[str, float] | None = None
        self.saved = self._checkpoint()  # the state after the last update
        self._evaluator = Evaluator(run.config, self._play, self.monitor.console.say)
        self._start = time.monotonic() - run.counters.wall_seconds
        self._reported, self._steps = time.monotonic(), 0

    def run(self) -> None:
        """Update until an ending condition."""
        self.monitor.commit({rundir.LATEST: self.saved})
        while not self.solved:
            if finish.evaluation_due(self.config, self.counters):
                self.evaluate_for_best()
            if finish.ending(self.config, self.counters):
                return
            self.update()

    def update(self) -> None:
        """Ask for perturbations, play them, and take the step, or none if the target is reached."""
        config, strategy, cap = self.config, self.strategy, self.counters.max_episode_length
        lr, sigma, norm = strategy.scheduled_lr(), strategy.sigma, 0.0
        episodes = config.episodes_per_perturbation
        tasks = training_tasks(
            strategy.seed, strategy.update, strategy.ask(), cap, episodes, config.episode_seeding
        )
        results = self._play(tasks, f"update {self.counters.update + 1}")
        with self._naming_environment():
            population = group_by_perturbation(results, episodes, config.reward_shift)
        score = population.unperturbed
        files: dict[str, Checkpoint] = {}
        film: Checkpoint | None = None
        self.solved = self._evaluator.reach_target(score, strategy.update)
        if config.eval_every is None and self._is_best(score):
            files[rundir.BEST] = self.saved
        if self.solved:
            # The parameters are those of the last state. If the run goes on, it plays this
            # population again and takes the step.
            best = score if config.eval_every is None else self.solved["mean"]
            state = self.saved.counters._replace(best_score=best)
            self.saved = self.saved._replace(solved=self.solved, counters=state)
            files = dict.fromkeys((rundir.BEST, rundir.LATEST), self.saved)
            self._count(population)
        else:
            norm = strategy.tell(population.fitness)
            if self.normalizer:
                self.normalizer.merge(results)
            self._count(population)
            self.saved = self._checkpoint()
            files[rundir.LATEST] = self.saved
            if config.save_every and self.counters.update % config.save_every == 0:
                files[f"update-{self.counters.update}.safetensors"] = self.saved
            if config.video_every and self.counters.update % config.video_every == 0:
                film = self.saved
        counters = self.counters
        record = Record(
            update=counters.update,
            episodes=counters.episodes,
            frames=counters.frames,
            wall_seconds=counters.wall_seconds,
            lr=lr,
            sigma=sigma,
            grad_norm=norm,
            steps_per_second=self._speed(),
            **describe_population(population),
        )
        self.monitor.commit(files, played=(record, population.returns), film=film)
        self.monitor.console.report(
            record,
            n=config.n,
            cap=cap,
            use_adam=config.optimizer_name != "sgd",
            best=self.counters.best_score,
        )

    def evaluate_for_best(self) -> None:
        """Evaluate as --eval-every wants, and save the state once more."""
        evaluation = self._evaluator.evaluate(self.counters.update)
        is_best = self._is_best(evaluation.mean)
        self.counters = self.counters._replace(
            evaluated=evaluation.update, wall_seconds=time.monotonic() - self._start
        )
        self.saved = self.saved._replace(counters=self.counters)
        names = (rundir.BEST, rundir.LATEST) if is_best else (rundir.LATEST,)
        self.monitor.commit(dict.fromkeys(names, self.saved), evaluation=evaluation)

    def _play(self, tasks: Sequence[Task], name: str) -> list[Result]:
        """The tasks' results; their steps are counted for the speed."""
        console = self.monitor.console
        console.begin(name, len(tasks))
        statistics = self.normalizer.statistics() if self.normalizer else None
        snapshot = Snapshot(self.strategy.theta, self.strategy.sigma, statistics)
        with self._naming_environment(), self.interrupts.allowed():
            results = self.pool.evaluate(snapshot, tasks, console.progress)
        self._steps += sum(result.steps for result in results)
        return results

    @contextmanager
    def _naming_environment(self) -> Iterator[None]:
        try:
            yield
        except ClusterError:  # not its fault
            raise
        except RunError as error:
            raise RunError(f"--env-name {self.config.env_name}: {error}") from error

    def _is_best(self, score: float) -> bool:
        """Whether this is the best score so far, or as good; then it is noted as such."""
        best = self.counters.best_score
        if not math.isfinite(score) or (best is not None and score < best):
            return False
        self.counters = self.counters._replace(best_score=score)
        return True

    def _count(self, population: Population) -> None:
        counters, lengths = self.counters, population.lengths
        episodes, frames = counters.episodes + len(lengths), counters.frames + sum(lengths)
        cap, most = counters.max_episode_length, self.config.max_episode_length
        if self.config.variable_ep_len:
            cap = variable_cap(lengths, most=most)
        if self.config.adaptive_ep_len:
            cap = adaptive_cap(lengths, cap, mean=frames / episodes, most=most)
        self.counters = counters._replace(
            update=counters.update + 1,
            episodes=episodes,
            frames=frames,
            wall_seconds=time.monotonic() - self._start,
            max_episode_length=cap,
            lr=self.strategy.lr,
            sigma=self.strategy.sigma,
        )

    def _checkpoint(self) -> Checkpoint:
        batch = self.setup.vbn_batch
        return Checkpoint(
            parameters=unflatten(self.setup.network, self.strategy.theta),
            optimizer=copy.deepcopy(self.strategy.optimizer.moments()),
            counters=self.counters,
            settings=self.config.saved(),
            environment=self.setup.environment,
            network=self.setup.network,
            versions=versions(),
            normalizer=self.normalizer.state() if self.normalizer else None,
            vbn_batch=None if batch is None else torch.from_numpy(batch),
        )

    def _speed(self) -> float:
        """Return the steps per second of everything played since the last call."""
        before, self._reported = self._reported, time.monotonic()
        steps, self._steps = self._steps, 0
        return steps / (self._reported - before)
