"""Training: ask for perturbations, evaluate them, tell their returns, save, report."""

import copy
import dataclasses
import math
import secrets
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from es import run
from es.algorithm.optimizers import norm
from es.algorithm.shaping import (
    Population,
    adaptive_cap,
    group_by_perturbation,
    mean_and_std,
    perturbations_needed,
    variable_cap,
)
from es.checkpoint import BEST, LATEST, RECENT, Checkpoint
from es.config import Config, require_needed
from es.envs import is_unlimited
from es.errors import (
    ClusterError,
    Interrupted,
    Interrupts,
    LimitError,
    RunError,
    UsageError,
    command,
    counted,
)
from es.model import unflatten
from es.policy import Policy, make_policy
from es.reports.console import Console
from es.reports.log import Record, describe_evaluation, describe_population
from es.reports.video import require_drawable
from es.rollouts.tasks import (
    UNPERTURBED,
    Results,
    Snapshot,
    Tasks,
    evaluation_tasks,
    training_tasks,
)
from es.run import AdaptRecipe, Outcome, StartedRun

# An evaluation may be cut short after this part of its episodes, and at least so many.
FIRST_PART, FEWEST_EPISODES = 0.2, 5

AfterUpdate = Callable[[Record, "Trainer"], bool]


def train(
    config: Config,
    checkpoint: Checkpoint | None,
    interrupts: Interrupts,
    *,
    console: Console | None = None,
    after_update: AfterUpdate | None = None,
    adapt_recipe: AdaptRecipe | None = None,
) -> Outcome:
    """Train until a limit or the target is reached.

    checkpoint: of --restore. console: shows the run, by default on standard output. after_update:
    called with the figures of each update; the run ends if it returns False. adapt_recipe: makes a
    recipe that can be sent to the workers, if the environment or the network is defined in the
    program that calls a training.

    Raise UsageError, with nothing on the disk changed, if settings and checkpoint do not fit.
    """
    console = console or Console(silent=config.silent, log_every=config.log_every)
    if checkpoint and (finished := run.finished_before(config, checkpoint)):
        reached, solved = finished
        console.close(
            f"Finished already: the run of {config.restore} has reached {reached}. Raise it "
            "to continue."
        )
        return Outcome(0, Path(config.restore).parent, solved, checkpoint)
    if config.seed is None:
        config = dataclasses.replace(config, seed=secrets.randbelow(2**31))
    with closing(console):
        phase_begins = False
        while True:
            with ExitStack() as stack:
                policy = _make_policy(config, checkpoint, console)
                if not phase_begins:
                    _try_phases(config, checkpoint, policy.network["shapes"])
                started = run.start(
                    policy, checkpoint, console, stack, adapt_recipe, phase_begins=phase_begins
                )
                outcome = Trainer(started, console, interrupts).run_to_end(after_update)
            if not outcome.phase_ended:
                return outcome
            config, checkpoint = run.next_phase(outcome.path, outcome.checkpoint)
            phase_begins = True


def _try_phases(
    config: Config, checkpoint: Checkpoint | None, shapes: Mapping[str, Sequence[int]]
) -> None:
    """Raise UsageError for a phase that cannot be played, before the run begins.

    shapes: of the network's parameters, which are the same in all phases.
    """
    for number in range(run.phases_begun(config, checkpoint), len(config.phase)):
        table, config = config.phase[number], config.in_phase(number)
        require_needed(table, config, f"[[phase]] {number + 1}: ")
        try:
            network = make_policy(config, checkpoint).network
        except UsageError as error:
            raise UsageError(f"[[phase]] {number + 1}: {error.message}") from error
        if network["shapes"] != shapes:
            raise UsageError(
                f"[[phase]] {number + 1} changes the size of observations or actions, which the "
                "network cannot follow. Remove the setting that does so"
            )


def _make_policy(config: Config, checkpoint: Checkpoint | None, console: Console) -> Policy:
    """Return the policy to train. Say what is left open; warn if episodes cannot be repeated."""
    policy = make_policy(config, checkpoint)
    if config.video_every:  # learn now whether the environment can be drawn
        require_drawable(policy.environment)
    if checkpoint is None and policy.network["kind"] == "mlp" and not config.small_net:
        console.say(
            f"Observations of {config.env_name} are vectors of {policy.network['inputs']} numbers: "
            "using the MLP (--small-net)."
        )
    if not policy.repeatable:
        console.warn(
            f"--env-name {config.env_name}: the same seed gives a different episode each time, so "
            "results depend on chance and on the number of workers. Draw from self.np_random alone"
        )
    most = config.max_episode_length
    is_default = most == Config.max_episode_length
    if checkpoint is None and is_default and is_unlimited(policy.environment):
        console.say(
            "The environment has no known step limit. Episodes end after "
            f"{most} steps (--max-episode-length)."
        )
    return policy


class Evaluation(NamedTuple):
    """The returns of the unperturbed policy, their mean and standard deviation."""

    returns: list[float]
    mean: float
    std: float


class Trainer:
    """A run in progress.

    An update changes the policy's parameters and statistics, the strategy and the counters. saved:
    the state after the last update, as the checkpoint has it. evaluated: the complete evaluation of
    the current parameters, if there is one. solved: the evaluation that reached the target, if one
    did.
    """

    def __init__(self, started: StartedRun, console: Console, interrupts: Interrupts) -> None:
        self.policy, self.strategy, self.counters, self.pool, self.log, self.path = started
        self.config, self.console = self.policy.config, console
        self.solved: dict[str, float] | None = None
        self.evaluated: Evaluation | None = None
        self.saved = self._checkpoint()
        self._interrupts = interrupts
        self._submitted: Tasks | None = None  # which are being played already
        self._start = time.monotonic() - self.counters.wall_seconds
        self._last_report = self.counters.total_frames, time.monotonic()

    # ---- the loop ----

    def run_to_end(self, after_update: AfterUpdate | None) -> Outcome:
        """Train, end workers and reports, and say how the run ended."""
        self._interrupts.defer()
        self.console.follow(run.limits(self.config, self.counters, self.path))
        interrupted, phase_ended = None, False
        try:
            phase_ended = self.train_phase(after_update)
        except Interrupted as error:
            interrupted = error
        except BrokenPipeError:  # nobody reads the output any more, as after `| head`
            interrupted = Interrupted(signal.SIGPIPE)
        finally:
            self.console.stop()
            try:
                self.pool.close()  # first: its processes take the cores that the picture needs
            finally:
                unwritten = self.log.close(
                    hurried=lambda: interrupted is not None or self._interrupts.received is not None
                )
        if phase_ended and not unwritten:
            return Outcome(0, self.path, False, self.saved, phase_ended=True)
        return self._conclude(interrupted, unwritten)

    def train_phase(self, after_update: AfterUpdate | None) -> bool:
        """Update until a limit or the target is reached, or `after_update` returns False.

        Return whether it ends because another phase of the settings begins.
        """
        self.log.commit({LATEST: self.saved})
        while True:
            if run.evaluation_due(self.config, self.counters):
                self.evaluate_for_best()
            if run.target_due(self.config, self.counters):
                self.evaluate_for_target()
            if self.solved or run.limit_reached(self.config, self.counters):
                return False
            if run.phase_due(self.config, self.counters):
                return True
            record = self.update()
            if after_update and not after_update(record, self):
                return False

    def update(self) -> Record:
        """Make one update (Salimans et al. 2017, algorithm 2); return its figures."""
        strategy, cap = self.strategy, self.counters.max_episode_length
        lr, sigma, theta = strategy.scheduled_lr(), strategy.sigma, strategy.theta.copy()
        results, population = self._play_perturbations(cap)
        with self._interrupts.allowed():  # a large population's noise takes long to sum
            gradient_norm = strategy.tell(population.fitness)
        if self.policy.normalizer:
            self.policy.normalizer.merge(results["observed"], results["steps"])
        self.evaluated = None
        self._count(population)
        if run.update_follows(self.config, self.counters):  # while the master saves and reports
            self._submit(self._first_tasks(self.counters.max_episode_length))
        files = self._take_checkpoints(population.unperturbed)
        record = Record(
            *self.counters[:4],  # update, episodes, frames, wall_seconds
            **describe_population(population),
            lr=lr,
            sigma=sigma,
            grad_norm=gradient_norm,
            steps_per_second=self._speed(),
            total_frames=self.counters.total_frames,
            update_ratio=norm(strategy.theta - theta) / (norm(strategy.theta) or 1.0),
        )
        film = self.saved if self._is_due(self.config.video_every) else None
        self.log.commit(files, played=(record, population.returns), film=film)
        self.console.report(
            record,
            n=len(population.returns),
            cap=cap,
            use_adam=self.config.optimizer in ("adam", "adamw"),
            best=self.counters.best_score,
        )
        return record

    def evaluate_for_best(self) -> None:
        """Evaluate the policy for --eval-every, and save the state again with the outcome."""
        self.evaluated = self._evaluate("evaluation", 0)
        is_best = self._note_best(self.evaluated.mean)
        self._save_again(is_best=is_best, evaluated=self.counters.update)

    def evaluate_for_target(self) -> None:
        """Evaluate the policy for --target-return, and save the state again with the outcome."""
        counters = self.counters
        self.solved = self._reach_target()
        if not self.solved:
            missed = {"missed_update": counters.update, "missed_return": counters.recent_mean}
            self._save_again(is_best=False, **missed)
            return
        by_evaluations = self.config.eval_every is not None
        self._save_again(is_best=not by_evaluations or self._note_best(self.solved["mean"]))

    # ---- episodes ----

    def _play_perturbations(self, cap: int) -> tuple[Results, Population]:
        """Play an update's perturbations and the unperturbed parameters, `cap` steps at most.

        With --frames-per-update, ask for further perturbations until they have seen that many
        steps. The population's unperturbed return is that of whole episodes, whatever the cap.
        """
        config, count = self.config, self.strategy.n
        name, episodes = f"update {self.strategy.update + 1}", config.episodes_per_perturbation
        if self._submitted is None:
            self._submit(self._first_tasks(cap))
        results = self._results(name)
        whole, results = np.split(results, [len(results) - (count + 1) * episodes])
        perturbed, unperturbed = np.split(results, [-episodes])
        if wanted := config.frames_per_update:
            steps, most = int(perturbed["steps"].sum()), config.n_max or 10 * config.n
            while (needed := perturbations_needed(count, steps, wanted, most)) > count:
                count, before = needed, len(perturbed) + episodes
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

    def _first_tasks(self, cap: int) -> Tasks:
        """Return the tasks of an update's first perturbations.

        If these are capped, whole episodes of the unperturbed parameters come before them: they
        last longest, and no worker should be left alone with one.
        """
        tasks, most = self._tasks(self.strategy.n, cap), self.config.max_episode_length
        limit = self.policy.recipe.cap
        if limit(cap) == limit(most):
            return tasks
        whole = tasks[-self.config.episodes_per_perturbation :].copy()
        whole["cap"] = most
        return np.concatenate([whole, tasks])

    def _tasks(self, count: int, cap: int) -> Tasks:
        """Return the tasks of an update's `count` perturbations; a larger count only adds tasks."""
        strategy, config = self.strategy, self.config
        members: list[tuple[int, int]] = [*strategy.ask(count)]
        members.insert(strategy.n, UNPERTURBED)
        return training_tasks(
            strategy.seed, strategy.update, members, cap,
            config.episodes_per_perturbation, config.episode_seeding,
        )  # fmt: skip

    def _evaluate(self, name: str, first: int, target: float = -math.inf) -> Evaluation:
        """Play --eval-episodes fresh episodes, from number `first` on.

        Stop early if the first of them show that the mean will not reach the target.
        """
        count, update = self.config.eval_episodes, self.counters.update
        cap, seed = self.config.max_episode_length, self.strategy.seed
        tasks = evaluation_tasks(seed, update, first + count, cap)[first:]
        name = f"{name} after {counted(update, 'update')}"
        few = max(FEWEST_EPISODES, int(count * FIRST_PART))
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
        self.console.say(
            f"{name[0].upper()}{name[1:]}: mean {mean:.2f}, standard deviation {std:.2f} "
            f"over {played}{counted(count, 'fresh episode')}, in {time.monotonic() - start:.2f} s\n"
        )
        return Evaluation(returns, mean, std)

    def _reach_target(self) -> dict[str, float] | None:
        """Return the evaluation in which the policy reaches --target-return, or None.

        A second evaluation has to confirm the first: among many evaluations, one may be lucky.
        """
        target, count = self.config.target_return, self.config.eval_episodes
        assert target is not None
        # Not that of --eval-every: a run that is resumed between the two could not know it.
        first = self._evaluate("evaluation", 0, target)
        if len(first.returns) == count:
            self.evaluated = first
        if not target <= first.mean < math.inf:
            return None
        second = self._evaluate("second evaluation", count, target)
        if not target <= second.mean < math.inf:
            return None
        return {"target": target, "mean": first.mean, "std": first.std, "second_mean": second.mean}

    def _submit(self, tasks: Tasks) -> None:
        """Start to play tasks; `_results` waits for them."""
        strategy, statistics = self.strategy, self.policy.statistics
        snapshot = Snapshot(strategy.theta, strategy.sigma, statistics, strategy.relative_sigma)
        self.pool.submit(snapshot, tasks)
        self._submitted = tasks

    def _results(self, name: str, before: int = 0, total: int = 0) -> Results:
        """Return the results of the submitted tasks, in task order; the user may interrupt.

        name: of the batch that they belong to. before, total: how many of its episodes have been
        played already, and how many there are at least, for the console.
        """
        assert self._submitted is not None
        episodes = max(total, before + len(self._submitted))

        def progress(done: int) -> None:
            self.console.progress(name, before + done, episodes, self.pool.describe())

        progress(0)
        with self._naming_environment(), self._interrupts.allowed():
            results = self.pool.results(progress)
        self._submitted = None
        total_frames = self.counters.total_frames + int(results["steps"].sum())
        self.counters = self.counters._replace(total_frames=total_frames)
        return results

    @contextmanager
    def _naming_environment(self) -> Iterator[None]:
        """Name the environment, and a network of the user's, in errors of an episode."""
        try:
            yield
        except (ClusterError, LimitError):  # not the environment's fault
            raise
        except RunError as error:
            net = f" --net {self.config.net}" if self.config.net else ""
            message = f"--env-name {self.config.env_name}{net}: {error.message}"
            raise RunError(message, error.details) from error

    def _speed(self) -> float:
        """Return the steps per second of all episodes since the last call."""
        frames_before, began = self._last_report
        frames, now = self.counters.total_frames, time.monotonic()
        self._last_report = frames, now
        return (frames - frames_before) / (now - began)

    # ---- the state ----

    def _count(self, population: Population) -> None:
        counters, config, lengths = self.counters, self.config, population.lengths
        recent = [*counters.recent, population.unperturbed][-RECENT:]
        episodes, frames = counters.episodes + len(lengths), counters.frames + sum(lengths)
        cap, most = counters.max_episode_length, config.max_episode_length
        if config.variable_ep_len:
            cap = variable_cap(lengths, most=most)
        if config.adaptive_ep_len:
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

    def _take_checkpoints(self, score: float) -> dict[str, Checkpoint]:
        """Take a checkpoint and note the best score; return the files to write, by name.

        score: the unperturbed return, which is that of the parameters before the step.
        """
        files: dict[str, Checkpoint] = {}
        if self.config.eval_every is None and self._note_best(score):
            files[BEST] = self.saved
        self.saved = files[LATEST] = self._checkpoint()
        if self._is_due(self.config.save_every):
            files[f"update-{self.counters.update}.safetensors"] = self.saved
        return files

    def _checkpoint(self) -> Checkpoint:
        policy, relative_sigma = self.policy, self.strategy.relative_sigma
        parameters = unflatten(policy.network, policy.theta)
        if policy.custom:
            untrained = policy.custom.untrained
            parameters |= {name: torch.from_numpy(array) for name, array in untrained.items()}
        return Checkpoint(
            parameters=parameters,
            config=self.config,
            counters=self.counters,
            optimizer=copy.deepcopy(self.strategy.optimizer.moments),
            normalizer=policy.normalizer.state() if policy.normalizer else None,
            relative_sigma=(
                None if relative_sigma is None else torch.from_numpy(relative_sigma.copy())
            ),
            vbn_batch=None if policy.vbn_batch is None else torch.from_numpy(policy.vbn_batch),
        )

    def _save_again(self, *, is_best: bool, **changed: Any) -> None:
        """Save the state with changed counters, and report the evaluation of its parameters."""
        seconds = time.monotonic() - self._start
        evaluated = self.evaluated
        evaluation = evaluated and describe_evaluation(self.counters, evaluated.returns)
        self.counters = self.counters._replace(wall_seconds=seconds, **changed)
        self.saved = self.saved._replace(counters=self.counters, solved=self.solved)
        names = (BEST, LATEST) if is_best else (LATEST,)
        self.log.commit(dict.fromkeys(names, self.saved), evaluation=evaluation)

    def _is_due(self, every: int | None) -> bool:
        return every is not None and self.counters.update % every == 0

    def _note_best(self, score: float) -> bool:
        """Return whether no score was better so far; if so, note this one as the best."""
        best = self.counters.best_score
        if not math.isfinite(score) or (best is not None and score < best):
            return False
        self.counters = self.counters._replace(best_score=score)
        return True

    # ---- the end ----

    def _conclude(self, interrupted: Interrupted | None, unwritten: Mapping[str, str]) -> Outcome:
        """Say how the run ended, and how to watch its policy."""
        config, path = self.config, self.path
        status, line = run.last_line(
            config, self.counters, self.solved, path, interrupted, unwritten
        )
        if status == run.MISSED:
            self.console.say(
                "Restore the run with a higher limit, or try another --seed, a larger --sigma, or "
                f"search for settings: {command('sweep', '--env-name', config.env_name)}"
            )
        self.console.say(run.how_to_watch(config, path / LATEST, drawable=self.policy.drawable))
        self.console.close(line)
        return Outcome(status, path, self.solved is not None, self.saved)
