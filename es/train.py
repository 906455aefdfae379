"""The master loop: ask for perturbations, evaluate them, tell their returns, checkpoint, report."""

import copy
import dataclasses
import math
import secrets
import time
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from functools import partial

import numpy as np
import torch

from es.algorithm.shaping import Population, adaptive_cap, variable_cap
from es.checkpoint import BEST, LATEST, RECENT, Checkpoint
from es.config import Config
from es.envs import make_env, may_wait_for_fire
from es.errors import Interrupts
from es.model import unflatten
from es.policy import describe
from es.rendering.show_frames import make_drawn
from es.reports.advice import Advisor
from es.reports.record import EvaluationRecord, Record, describe_evaluation, describe_population
from es.reports.terminal import Terminal
from es.rollouts.processes import ending_children
from es.runs import finish
from es.runs.evaluator import Evaluator
from es.runs.start import HandOver, Run, start_run

AfterUpdate = Callable[[Record, "Trainer"], bool]


def train(
    config: Config,
    restored: Checkpoint | None,
    interrupts: Interrupts,
    *,
    console: Terminal | None = None,
    after_update: AfterUpdate | None = None,
    hand_over: HandOver | None = None,
) -> finish.Outcome:
    """Train until an ending condition is met.

    console: shows the run, by default on standard output. after_update: called with the figures of
    each update; the run ends if it returns False. hand_over: makes a recipe that can be sent to the
    workers, if the environment or the network is defined in the program that calls a training.
    """
    console = console or Terminal(silent=config.silent, log_every=config.log_every)
    if met := finish.met_before(config, restored):
        return finish.finished_already(config, restored, met, console, interrupts)
    with ExitStack() as stack:
        stack.callback(console.close)
        if config.seed is None:
            config = dataclasses.replace(config, seed=secrets.randbelow(2**31))
        # Without workers, the environment is made here again and may use what is left.
        with ending_children() if config.workers != 0 else nullcontext():
            setup, theta = describe(config, restored)
            if config.video_every:  # learn now whether the environment can be drawn
                make = partial(make_env, setup.environment, "rgb_array")
                remedy = "leave --video-every out, or give None"
                make_drawn(make, setup.environment["kwargs"], remedy).close()
        run = start_run(config, restored, setup, theta, console, stack, hand_over)
        path = run.directory.path
        console.say(
            f"Num params in network: {theta.size}\nSeed: {config.seed}\nRun directory: {path}\n"
        )
        trainer = Trainer(run, interrupts, after_update)
        interrupts.defer()
        console.follow(finish.run_limits(run.config, path, run.counters), run.pool.describe)
        interrupted, unwritten = finish.play_out(trainer.run, run.pool, run.monitor, interrupts)
        status, last_line = finish.conclude(
            run.config, trainer.counters, trainer.solved, path, interrupted, unwritten
        )
        finish.say_last(run.config, path, console, status, last_line, drawable=run.setup.drawable)
        return finish.Outcome(status, path, trainer.solved is not None, trainer.saved)


class Trainer:
    """A run in progress. An update changes the strategy, the normalizer and the counters."""

    def __init__(
        self, run: Run, interrupts: Interrupts, after_update: AfterUpdate | None = None
    ) -> None:
        self.after_update, self.interrupts = after_update, interrupts
        self.path = run.directory.path
        self.config, self.setup, self.monitor = run.config, run.setup, run.monitor
        self.strategy, self.normalizer, self.counters = run.strategy, run.normalizer, run.counters
        self.evaluator = Evaluator(run, interrupts)
        self.advisor = Advisor(fire=may_wait_for_fire(run.setup.environment))
        self.solved: dict[str, float] | None = None
        self.saved = self._checkpoint()  # the state after the last update
        self._start = time.monotonic() - run.counters.wall_seconds

    def run(self) -> None:
        """Update until an ending condition is met."""
        self.monitor.commit({LATEST: self.saved})
        while True:
            if finish.evaluation_due(self.config, self.counters):
                self.evaluate_for_best()
            if finish.target_due(self.config, self.counters):
                self.evaluate_for_target()
            if self.solved or finish.ending(self.config, self.counters):
                return
            record = self.update()
            if self.after_update and not self.after_update(record, self):
                return

    def update(self) -> Record:
        """Make one update (Salimans et al. 2017, algorithm 2); return its figures."""
        strategy, cap = self.strategy, self.counters.max_episode_length
        lr, sigma = strategy.scheduled_lr(), strategy.sigma
        results, population = self.evaluator.play_perturbations(cap)
        # A large population's noise takes long to sum. The state in `saved` is a copy.
        with self.interrupts.allowed():
            norm = strategy.tell(population.fitness)
        if self.normalizer:
            self.normalizer.merge(results["observed"], results["steps"])
        self._count(population)
        if not finish.pausing(self.config, self.counters):
            self.evaluator.prepare(self.counters.max_episode_length)
        files = self._save(population.unperturbed)
        record = Record(
            *self.counters[:4],  # update, episodes, frames, wall_seconds
            **describe_population(population),
            lr=lr,
            sigma=sigma,
            grad_norm=norm,
            steps_per_second=self.evaluator.speed(),
        )
        film = self.saved if self._due(self.config.video_every) else None
        self.monitor.commit(files, played=(record, population.returns), film=film)
        self.monitor.console.report(
            record,
            n=len(population.returns),
            cap=cap,
            use_adam=self.config.optimizer_name in ("adam", "adamw"),
            best=self.counters.best_score,
        )
        for advice in self.advisor.advise(record, population, cap):
            self.monitor.console.say(f"{advice}\n")
        return record

    def evaluate_for_best(self) -> None:
        """Evaluate the policy for --eval-every, and save the state again with the outcome."""
        update = self.counters.update
        is_best = self._is_best(self.evaluator.evaluate(update).mean)
        evaluation = self._evaluation()
        self.counters = self.counters._replace(
            evaluated=update, wall_seconds=time.monotonic() - self._start
        )
        self.saved = self.saved._replace(counters=self.counters)
        names = (BEST, LATEST) if is_best else (LATEST,)
        self.monitor.commit(dict.fromkeys(names, self.saved), evaluation=evaluation)

    def evaluate_for_target(self) -> None:
        """Evaluate the policy for --target-return, and save the state again with the outcome."""
        counters = self.counters
        self.solved = self.evaluator.reach_target(counters.update)
        evaluation = self._evaluation()
        if not self.solved:
            self.counters = counters._replace(
                missed_update=counters.update, missed_return=counters.recent_mean
            )
        elif self.config.eval_every is not None:
            self._is_best(self.solved["mean"])
        self.counters = self.counters._replace(wall_seconds=time.monotonic() - self._start)
        self.saved = self.saved._replace(counters=self.counters, solved=self.solved)
        names = (BEST, LATEST) if self.solved else (LATEST,)
        self.monitor.commit(dict.fromkeys(names, self.saved), evaluation=evaluation)

    def _evaluation(self) -> EvaluationRecord | None:
        """Return the evaluation of the current parameters, if there was one."""
        last = self.evaluator.last
        if last is None or last.update != self.counters.update:
            return None
        return describe_evaluation(self.counters, last.returns)

    def _count(self, population: Population) -> None:
        counters, lengths = self.counters, population.lengths
        recent = [*counters.recent, population.unperturbed][-RECENT:]
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
            recent=recent if np.isfinite(recent).all() else [],
        )

    def _save(self, score: float) -> dict[str, Checkpoint]:
        """Return the checkpoints to write after an update, by file name.

        score: the unperturbed return, which is that of the parameters before the step.
        """
        files: dict[str, Checkpoint] = {}
        if self.config.eval_every is None and self._is_best(score):
            files[BEST] = self.saved
        self.saved = files[LATEST] = self._checkpoint()
        if self._due(self.config.save_every):
            files[f"update-{self.counters.update}.safetensors"] = self.saved
        return files

    def _due(self, every: int | None) -> bool:
        return every is not None and self.counters.update % every == 0

    def _is_best(self, score: float) -> bool:
        """Return whether no score was better so far; if so, note this one as the best."""
        best = self.counters.best_score
        if not math.isfinite(score) or (best is not None and score < best):
            return False
        self.counters = self.counters._replace(best_score=score)
        return True

    def _checkpoint(self) -> Checkpoint:
        batch, spread = self.setup.vbn_batch, self.strategy.relative_sigma
        return Checkpoint(
            parameters=unflatten(self.setup.network, self.strategy.theta) | self.setup.kept,
            config=self.config,
            counters=self.counters,
            optimizer=copy.deepcopy(self.strategy.optimizer.moments),
            normalizer=self.normalizer.state() if self.normalizer else None,
            spread=None if spread is None else torch.from_numpy(spread.copy()),
            vbn_batch=None if batch is None else torch.from_numpy(batch),
        )
