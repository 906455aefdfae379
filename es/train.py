"""Training: ask for perturbations, evaluate them, tell their returns, save, report."""

import copy
import dataclasses
import math
import secrets
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from es import run
from es.algorithm.noise import SumNoise, weighted_sum
from es.algorithm.shaping import (
    Population,
    adaptive_cap,
    group_by_perturbation,
    mean_and_std,
    perturbations_needed,
    variable_cap,
)
from es.algorithm.statistics import Normalizer
from es.algorithm.strategy import Strategy
from es.checkpoint import BEST, LATEST, RECENT, Checkpoint, Counters
from es.config import FIELDS, Config
from es.envs import is_unlimited, make_env
from es.errors import (
    ClusterError,
    Interrupted,
    Interrupts,
    LimitError,
    RunError,
    UsageError,
    naming_limits,
)
from es.model import unflatten
from es.policy import Policy, make_policy
from es.rendering.show_frames import make_drawn
from es.rendering.window import watching
from es.reports.live_view import RunLimits
from es.reports.record import EvaluationRecord, Record, describe_evaluation, describe_population
from es.reports.reporter import Reporter
from es.reports.terminal import Terminal
from es.reports.wandb import WandbReporter
from es.rollouts.in_process import InProcessPool
from es.rollouts.interface import Pool, counted
from es.rollouts.pool import WorkerPool
from es.rollouts.processes import IMPORTS, PRELOAD, cores, ending_children, modules_for_workers
from es.rollouts.rollout import (
    UNPERTURBED,
    Recipe,
    Result,
    Snapshot,
    Task,
    evaluation_tasks,
    training_tasks,
)
from es.run import Outcome

# An evaluation may fail after a fifth of its episodes, and at least 5.
FAILING_PART, FEWEST_EPISODES = 5, 5

AfterUpdate = Callable[[Record, "Trainer"], bool]
HandOver = Callable[[Recipe], Recipe]


def train(
    config: Config,
    checkpoint: Checkpoint | None,
    interrupts: Interrupts,
    *,
    console: Terminal | None = None,
    after_update: AfterUpdate | None = None,
    hand_over: HandOver | None = None,
) -> Outcome:
    """Train until a limit or the target is reached.

    checkpoint: of --restore. console: shows the run, by default on standard output. after_update:
    called with the figures of each update; the run ends if it returns False. hand_over: makes a
    recipe that can be sent to the workers, if the environment or the network is defined in the
    program that calls a training.

    Raise UsageError, with nothing on the disk changed, if settings and checkpoint do not fit.
    """
    console = console or Terminal(silent=config.silent, log_every=config.log_every)
    if checkpoint and (reached := run.finished_before(config, checkpoint)):
        console.close(
            f"Finished already: the run of {config.restore} has reached {reached}. Raise that to "
            "continue."
        )
        solved = run.solved_before(config, checkpoint) is not None
        return Outcome(0, Path(config.restore).parent, solved, checkpoint)
    with ExitStack() as stack:
        stack.callback(console.close)
        if config.seed is None:
            config = dataclasses.replace(config, seed=secrets.randbelow(2**31))
        # Without workers, the environment is made here again and may use what is left.
        with ending_children() if config.workers != 0 else nullcontext():
            policy = make_policy(config, checkpoint)
            if config.video_every:  # learn now whether the environment can be drawn
                make = partial(make_env, policy.environment, "rgb_array")
                remedy = "leave --video-every out, or give None"
                make_drawn(make, policy.environment["kwargs"], remedy).close()
        say_what_is_played(config, policy, console, is_new=checkpoint is None)
        trainer = start(policy, checkpoint, console, stack, hand_over)
        return trainer.run_to_end(interrupts, after_update)


def say_what_is_played(config: Config, policy: Policy, console: Terminal, *, is_new: bool) -> None:
    """Say what the settings leave open, and warn where results depend on chance."""
    if policy.config.small_net and not config.small_net:
        console.say(
            f"{config.env_name} is seen as a vector of {policy.network['inputs']} numbers: using "
            "the MLP (--small-net)."
        )
    if not policy.repeatable:
        console.warn(
            f"--env-name {config.env_name}: the same episode differs when it is played again, so "
            "results depend on chance and on the number of workers. Draw from self.np_random alone"
        )
    most = config.max_episode_length
    if is_new and most == Config.max_episode_length and is_unlimited(policy.environment):
        console.say(f"No limit of steps is known: episodes may last {most} (--max-episode-length).")


def start(
    policy: Policy,
    checkpoint: Checkpoint | None,
    console: Terminal,
    stack: ExitStack,
    hand_over: HandOver | None,
) -> "Trainer":
    """Start workers and reports, and open the directory; `stack` ends all but the reports."""
    config = policy.config
    wandb = WandbReporter(console.say, console.warn) if config.wandb else None
    path, resumed = run.destination(config, checkpoint)
    pool, sum_noise = start_pool(policy, console, hand_over)
    stack.callback(pool.close)
    # The workers start while the optimiser's modules are imported here.
    strategy = Strategy(policy.theta, config, sum_noise)
    if checkpoint and checkpoint.config:
        restore(strategy, checkpoint, config)
    directory = run.open_directory(path) if resumed else run.open_new(path)
    stack.callback(directory.close)
    if directory.path != path:
        console.say(f"{path} holds another run: this one goes to {directory.path}.")
    counters = run.first_counters(config, checkpoint, resumed=resumed)
    config = run.settings_to_save(config, checkpoint, path, resumed=resumed)
    run.write_settings(directory.path, config, checkpoint if resumed else None)
    with run.writable(directory.path), naming_limits():  # it starts threads
        reports = Reporter(
            directory,
            console,
            title=config.env_name,
            counters=counters,
            target=config.target_return,
            settings=config.hyperparameters(),
            filmed=config.flags_to_restore if config.video_every else None,
            wandb=wandb,
        )
    if wandb:
        wandb.begin(directory.path, config.saved())
    console.say(
        f"Num params in network: {policy.theta.size}\nSeed: {config.seed}\n"
        f"Run directory: {directory.path}\n"
    )
    policy = dataclasses.replace(policy, config=config)
    return Trainer(policy, strategy, counters, pool, reports, directory.path)


def start_pool(
    policy: Policy, console: Terminal, hand_over: HandOver | None
) -> tuple[Pool, SumNoise]:
    """Return the pool that plays, and the function that sums noise."""
    config, recipe = policy.config, policy.recipe
    sum_here = partial(weighted_sum, threads=cores())
    if config.workers == 0:
        return InProcessPool(recipe, console.say), sum_here
    if hand_over:
        recipe = hand_over(recipe)
    settings: dict[str, Any] = {
        "size": policy.theta.size,
        "inputs": policy.inputs,
        "spread": config.sigma_adapt,
        "workers": config.workers,
        "timeout": config.rollout_timeout,
        "say": console.say,
    }
    if config.ray is None:
        return WorkerPool(recipe, members=config.n + 1, **settings), sum_here
    from es.cluster.pool import RayPool

    console.say(f"Connecting to Ray (--ray {config.ray}) ...")
    pool = RayPool(
        config.ray,
        recipe,
        patience=config.ray_timeout,
        preload=modules_for_workers(config.net),
        variables={PRELOAD: config.env_name, IMPORTS: " ".join(config.user_modules)},
        **settings,
    )
    return pool, pool.sum_noise


def restore(strategy: Strategy, checkpoint: Checkpoint, config: Config) -> None:
    """Give the strategy the state of a checkpoint, but for what other settings replace."""
    before, counters = checkpoint.config, checkpoint.counters
    assert before is not None
    strategy.update = counters.update
    if config.step_size == before.step_size:
        strategy.lr = counters.lr  # as it has decayed
    if config.sigma == before.sigma:
        strategy.sigma = counters.sigma
    if strategy.relative_sigma is not None and checkpoint.spread is not None:
        strategy.relative_sigma[:] = checkpoint.spread
    # The moments of another optimiser are of no use.
    if (config.optimizer_name, config.momentum > 0) == (before.optimizer_name, before.momentum > 0):
        try:
            strategy.optimizer.load(checkpoint.optimizer)
        except (LookupError, RuntimeError, ValueError) as error:
            raise UsageError(f"--restore {config.restore}: is damaged ({error})") from error


class Evaluation(NamedTuple):
    """The returns of the policy after `update` updates, their mean and standard deviation."""

    update: int
    returns: list[float]
    mean: float
    std: float


class Trainer:
    """A run in progress.

    An update changes the policy's parameters and statistics, the strategy and the counters. saved:
    the state after the last update, as the checkpoint has it. solved: the evaluation that reached
    the target, if one did. evaluated: the last complete evaluation.
    """

    def __init__(
        self, policy: Policy, strategy: Strategy, counters: Counters, pool: Pool, reports: Reporter,
        path: Path,
    ) -> None:  # fmt: skip
        self.config, self.policy, self.strategy, self.counters = (
            policy.config,
            policy,
            strategy,
            counters,
        )
        self.pool, self.reports, self.path = pool, reports, path
        self.console = reports.console
        self.solved: dict[str, float] | None = None
        self.evaluated: Evaluation | None = None
        self.saved = self._checkpoint()
        self._interrupts = Interrupts()
        self._prepared: list[Task] = []  # which are being played already
        self._start = time.monotonic() - counters.wall_seconds
        self._total_frames = counters.total_frames
        self._steps, self._steps_since = 0, time.monotonic()

    @property
    def normalizer(self) -> Normalizer | None:
        """Return the statistics of observations, if these are normalised."""
        return self.policy.normalizer

    # ---- the loop ----

    def run_to_end(self, interrupts: Interrupts, after_update: AfterUpdate | None) -> Outcome:
        """Train, end workers and reports, and say how the run ended."""
        self._interrupts = interrupts
        interrupts.defer()
        self.console.follow(self._limits(), self.pool.describe)
        interrupted = None
        try:
            self.run(after_update)
        except Interrupted as error:
            interrupted = error
        except BrokenPipeError:  # nobody reads the output any more, as after `| head`
            interrupted = Interrupted(signal.SIGPIPE)
        finally:
            self.console.stop()
            try:
                self.pool.close()  # first: its processes take the cores that the picture needs
            finally:
                unwritten = self.reports.close(
                    hurried=lambda: interrupted is not None or interrupts.received is not None
                )
        return self._conclude(interrupted, unwritten)

    def run(self, after_update: AfterUpdate | None) -> None:
        """Update until a limit or the target is reached, or `after_update` returns False."""
        self.reports.commit({LATEST: self.saved})
        while True:
            if run.evaluation_due(self.config, self.counters):
                self.evaluate_for_best()
            if run.target_due(self.config, self.counters):
                self.evaluate_for_target()
            if self.solved or run.limit_reached(self.config, self.counters):
                return
            record = self.update()
            if after_update and not after_update(record, self):
                return

    def update(self) -> Record:
        """Make one update (Salimans et al. 2017, algorithm 2); return its figures."""
        strategy, cap = self.strategy, self.counters.max_episode_length
        lr, sigma = strategy.scheduled_lr(), strategy.sigma
        results, population = self._play_perturbations(cap)
        # A large population's noise takes long to sum. The state in `saved` is a copy.
        with self._interrupts.allowed():
            gradient_norm = strategy.tell(population.fitness)
        if self.policy.normalizer:
            sums = [result.observed for result in results if result.observed is not None]
            self.policy.normalizer.merge(sums, [result.steps for result in results])
        self._count(population)
        if run.update_follows(self.config, self.counters):
            self._prepare()
        files = self._checkpoints(population.unperturbed)
        record = Record(
            *self.counters[:4],  # update, episodes, frames, wall_seconds
            **describe_population(population),
            lr=lr,
            sigma=sigma,
            grad_norm=gradient_norm,
            steps_per_second=self._speed(),
        )
        film = self.saved if self._is_due(self.config.video_every) else None
        self.reports.commit(files, played=(record, population.returns), film=film)
        self.console.report(
            record,
            n=len(population.returns),
            cap=cap,
            use_adam=self.config.optimizer_name in ("adam", "adamw"),
            best=self.counters.best_score,
        )
        return record

    def evaluate_for_best(self) -> None:
        """Evaluate the policy for --eval-every, and save the state again with the outcome."""
        update = self.counters.update
        evaluation = self.evaluated
        if evaluation is None or evaluation.update != update:
            evaluation = self.evaluated = self._evaluate("evaluation", 0)
        is_best = self._is_best(evaluation.mean)
        self._save_again(is_best=is_best, evaluated=update)

    def evaluate_for_target(self) -> None:
        """Evaluate the policy for --target-return, and save the state again with the outcome."""
        counters = self.counters
        self.solved = self._reach_target()
        if not self.solved:
            missed = {"missed_update": counters.update, "missed_return": counters.recent_mean}
            self._save_again(is_best=False, **missed)
            return
        if self.config.eval_every is not None:
            self._is_best(self.solved["mean"])
        self._save_again(is_best=True)

    def _save_again(self, *, is_best: bool, **changed: Any) -> None:
        """Save the state with changed counters, and report the evaluation of its parameters."""
        seconds = time.monotonic() - self._start
        evaluation: EvaluationRecord | None = None
        if self.evaluated and self.evaluated.update == self.counters.update:
            evaluation = describe_evaluation(self.counters, self.evaluated.returns)
        self.counters = self.counters._replace(
            wall_seconds=seconds, total_frames=self._total_frames, **changed
        )
        self.saved = self.saved._replace(counters=self.counters, solved=self.solved)
        names = (BEST, LATEST) if is_best else (LATEST,)
        self.reports.commit(dict.fromkeys(names, self.saved), evaluation=evaluation)

    # ---- episodes ----

    def _play_perturbations(self, cap: int) -> tuple[list[Result], Population]:
        """Play an update's perturbations and the unperturbed parameters, `cap` steps at most.

        With --frames-per-update, ask for further perturbations until they have seen that many
        steps. The population's unperturbed return is that of whole episodes, whatever the cap.
        """
        config, count = self.config, self.strategy.n
        name, episodes = f"update {self.strategy.update + 1}", config.episodes_per_perturbation
        tasks, self._prepared = self._prepared or self._first_tasks(cap), []
        results = self._play(tasks, name)
        whole_episodes = len(tasks) - (count + 1) * episodes  # of the unperturbed parameters
        whole, results = results[:whole_episodes], results[whole_episodes:]
        perturbed, unperturbed = results[:-episodes], results[-episodes:]
        if wanted := config.frames_per_update:
            steps, most = sum(result.steps for result in perturbed), config.n_most
            while count < (count := perturbations_needed(count, steps, wanted, most)):
                before = len(perturbed) + episodes
                further = self._play(self._tasks(count, cap)[before:], name, before)
                steps += sum(result.steps for result in further)
                perturbed += further
        results = perturbed + unperturbed
        clipped = [result.clipped_return for result in results] if config.reward_clip else None
        with self._naming_environment():
            population = group_by_perturbation(
                [result.episode_return for result in results],
                [result.steps for result in results],
                episodes,
                clipped=clipped,
                reward_shift=config.reward_shift,
            )
        if whole:
            mean, _ = mean_and_std([result.episode_return for result in whole])
            population = population._replace(unperturbed=mean)
        return results, population

    def _prepare(self) -> None:
        """Have the next update's first perturbations played while the master does other things."""
        with self._naming_environment():
            self._prepared = self._first_tasks(self.counters.max_episode_length)
            self.pool.prepare(self._snapshot(), self._prepared)

    def _first_tasks(self, cap: int) -> list[Task]:
        """Return the tasks of an update's first perturbations.

        If these are capped, whole episodes of the unperturbed parameters come before them: they
        last longest, and no worker should be left alone with one.
        """
        tasks, most = self._tasks(self.strategy.n, cap), self.config.max_episode_length
        if cap == most:
            return tasks
        whole = tasks[-self.config.episodes_per_perturbation :]
        return [
            *(task._replace(index=len(tasks) + i, cap=most) for i, task in enumerate(whole)),
            *tasks,
        ]

    def _tasks(self, count: int, cap: int) -> list[Task]:
        """Return the tasks of an update of `count` perturbations: those of fewer come first."""
        strategy, config = self.strategy, self.config
        members: list[tuple[int, int]] = [*strategy.ask(count)]
        members.insert(strategy.n, UNPERTURBED)
        return training_tasks(
            strategy.seed, strategy.update, members, cap,
            config.episodes_per_perturbation, config.episode_seeding,
        )  # fmt: skip

    def _evaluate(self, name: str, first: int, target: float = -math.inf) -> Evaluation:
        """Play --eval-episodes fresh episodes, of which `first` is the first.

        Stop early if some of them show that the mean will not reach the target.
        """
        config, count, update = self.config, self.config.eval_episodes, self.counters.update
        tasks = evaluation_tasks(
            self.strategy.seed, update, first + count, config.max_episode_length
        )[first:]
        name = f"{name} after {counted(update, 'update')}"
        few = max(FEWEST_EPISODES, count // FAILING_PART)
        parts = (tasks,) if target == -math.inf else (tasks[:few], tasks[few:])
        returns, start = list[float](), time.monotonic()
        for part in parts:
            results = self._play(part, name, len(returns), count)
            returns += [result.episode_return for result in results]
            mean, std = mean_and_std(returns)
            # By chance, a mean strays from the true one by more than this once in twenty times.
            if len(returns) == count or mean + 2 * std / math.sqrt(few - 1) < target:
                break
        played = "" if len(returns) == count else f"the first {len(returns)} of "
        self.console.say(
            f"{name[0].upper()}{name[1:]}: mean {mean:.2f}, standard deviation {std:.2f} "
            f"over {played}{counted(count, 'fresh episode')}, in {time.monotonic() - start:.2f} s\n"
        )
        return Evaluation(update, returns, mean, std)

    def _reach_target(self) -> dict[str, float] | None:
        """Return the evaluation in which the policy reaches --target-return, or None.

        A second one has to confirm the first, which may be lucky if it is asked again and again.
        """
        target, count, first = self.config.target_return, self.config.eval_episodes, self.evaluated
        assert target is not None
        if first is None or first.update != self.counters.update:
            first = self._evaluate("evaluation", 0, target)
            if len(first.returns) == count:
                self.evaluated = first
        if not target <= first.mean < math.inf:
            return None
        second = self._evaluate("second evaluation", count, target)
        if not target <= second.mean < math.inf:
            return None
        return {"target": target, "mean": first.mean, "std": first.std, "second_mean": second.mean}

    def _play(
        self, tasks: Sequence[Task], name: str, before: int = 0, total: int = 0
    ) -> list[Result]:
        """Return the tasks' results, in task order; the user may interrupt it.

        name: of the batch that they are part of. before, total: its episodes that have been played
        already, and all that are known of, for the console.
        """
        self.console.begin(name, max(total, before + len(tasks)))
        self.console.progress(before)

        def progress(done: int) -> None:
            self.console.progress(before + done)

        with self._naming_environment(), self._interrupts.allowed():
            results = self.pool.evaluate(self._snapshot(), tasks, progress)
        steps = sum(result.steps for result in results)
        self._steps += steps
        self._total_frames += steps
        return results

    def _snapshot(self) -> Snapshot:
        strategy = self.strategy
        return Snapshot(
            strategy.theta, strategy.sigma, self.policy.statistics, strategy.relative_sigma
        )

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
            raise RunError(message, error.trace) from error

    def _speed(self) -> float:
        """Return the steps per second of all episodes since the last call."""
        before, self._steps_since = self._steps_since, time.monotonic()
        steps, self._steps = self._steps, 0
        return steps / (self._steps_since - before)

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
            total_frames=self._total_frames,
            wall_seconds=time.monotonic() - self._start,
            max_episode_length=cap,
            lr=self.strategy.lr,
            sigma=self.strategy.sigma,
            recent=recent if np.isfinite(recent).all() else [],
        )

    def _checkpoints(self, score: float) -> dict[str, Checkpoint]:
        """Return the checkpoints to write after an update, by file name.

        score: the unperturbed return, which is that of the parameters before the step.
        """
        files: dict[str, Checkpoint] = {}
        if self.config.eval_every is None and self._is_best(score):
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
            spread=None if relative_sigma is None else torch.from_numpy(relative_sigma.copy()),
            vbn_batch=None if policy.vbn_batch is None else torch.from_numpy(policy.vbn_batch),
        )

    def _is_due(self, every: int | None) -> bool:
        return every is not None and self.counters.update % every == 0

    def _is_best(self, score: float) -> bool:
        """Return whether no score was better so far; if so, note this one as the best."""
        best = self.counters.best_score
        if not math.isfinite(score) or (best is not None and score < best):
            return False
        self.counters = self.counters._replace(best_score=score)
        return True

    # ---- the end ----

    def _limits(self) -> RunLimits:
        """Return where the run ends, for the live view; the default limit is no aim."""
        config = self.config
        limits = {
            "update": config.max_gradient_updates,
            "frames": config.max_frames,
            "minutes": config.max_minutes,
        }
        given = {name: limit for name, limit in limits.items() if limit is not None}
        if given == {"update": FIELDS["max_gradient_updates"].default}:
            given = {}
        return RunLimits(config.env_name, self.path, config.target_return, given, self.counters)

    def _conclude(self, interrupted: Interrupted | None, unwritten: Mapping[str, str]) -> Outcome:
        """Say how the run ended, and how to watch its policy."""
        config, path = self.config, self.path
        status, line = run.last_line(
            config, self.counters, self.solved, path, interrupted, unwritten
        )
        if status == run.MISSED:
            self.console.say(
                "Restore the run with a higher limit, or try another --seed, a larger --sigma, or "
                "sweep.py, which searches for settings."
            )
        self.console.say(how_to_watch(config, path / LATEST, drawable=self.policy.drawable))
        self.console.close(line)
        return Outcome(status, path, self.solved is not None, self.saved)


def how_to_watch(config: Config, checkpoint: Path, *, drawable: bool) -> str:
    """Return the command that shows a policy or, if its environment has no pictures, plays it."""
    what = "Watch it:" if drawable else "Play it (its environment has no render mode rgb_array):"
    return f"{what}\n  {run.command_for(config, checkpoint, *watching(drawable=drawable))}"
