"""Start a run: a new one, one that is continued, or a branch of one."""

import dataclasses
import os
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from es.algorithm.noise import FloatArray, SumNoise, weighted_sum
from es.algorithm.statistics import Normalizer
from es.algorithm.strategy import Strategy
from es.checkpoint import BEST, Checkpoint, Counters, load
from es.config import Config
from es.errors import UsageError, naming_limits
from es.policy import restored_normalizer
from es.reports.reporter import Reporter
from es.reports.terminal import Terminal
from es.reports.wandb import WandbReporter
from es.rollouts.in_process import InProcessPool
from es.rollouts.interface import Pool
from es.rollouts.pool import WorkerPool
from es.rollouts.processes import IMPORTS, PRELOAD, cores, modules_for_workers
from es.rollouts.rollout import Recipe
from es.runs import directory as rundir
from es.runs.directory import RunDir
from es.runs.setup import Setup
from es.settings import CHANGED, TITLE, change_line, scored_alike, write_toml

HandOver = Callable[[Recipe], Recipe]


class Run(NamedTuple):
    """Everything that the master loop needs."""

    config: Config
    setup: Setup
    directory: RunDir
    strategy: Strategy
    normalizer: Normalizer | None
    counters: Counters
    pool: Pool
    monitor: Reporter


def start_run(
    config: Config,
    restored: Checkpoint | None,
    setup: Setup,
    theta: FloatArray,
    console: Terminal,
    stack: ExitStack,
    hand_over: HandOver | None = None,
) -> Run:
    """Start workers and reports, and open the directory; `stack` ends all but the reports.

    Raise UsageError, with nothing on disk changed, if settings and checkpoint do not fit.
    """
    wandb = None
    if config.wandb:
        wandb = WandbReporter(console.say, console.warn)
    ours = restored if restored and restored.config else None  # or else weights alone
    if setup.network["kind"] == "mlp" and not config.small_net:
        console.say(
            f"{config.env_name} is seen as a vector of {setup.network['inputs']} numbers: "
            "using the MLP (--small-net)."
        )
        config = dataclasses.replace(config, small_net=True)
    if not setup.repeatable:
        console.warn(
            f"--env-name {config.env_name}: the same episode differs when it is played again, so "
            "results depend on chance and on the number of workers; draw from self.np_random alone"
        )
    default, restore = rundir.default_path("checkpoints", config.env_name), Path(config.restore)
    most = config.max_episode_length
    if not restored and most == Config.max_episode_length and setup.unlimited:
        console.say(f"No limit of steps is known: episodes may last {most} (--max-episode-length).")
    with rundir.writable(Path(config.run_dir or default)):
        path, same_run = rundir.choose(config.run_dir, default, restore if ours else None)
    pool, sum_noise = _start_pool(config, setup, theta, console, hand_over)
    stack.callback(pool.close)
    # The workers start while the optimiser's modules are imported here.
    strategy = _make_strategy(config, ours, theta, sum_noise)
    normalizer = restored_normalizer(config, setup.normalized_inputs, ours)
    counters = _make_counters(config, ours, same_run=same_run)
    directory = (
        rundir.open_existing(path)
        if same_run
        else rundir.open_new(path, chosen=config.run_dir is not None)
    )
    stack.callback(directory.close)
    if same_run and ours:  # the directory was not locked when the checkpoint was loaded
        current = load(config.restore)
        if current.counters != ours.counters:
            raise UsageError(f"--restore {config.restore}: has changed meanwhile; try again")
    # Absolute, so that the settings repeat the run from any folder.
    origin = os.path.abspath(config.restore) if config.restore else ""
    override = config.override
    if directory.path != path:
        console.say(f"{path} holds another run: this one goes to {directory.path}.")
    run_dir: str | None = str(path)  # so that its settings, repeated, take a number again
    if ours and same_run:
        before = settings_of(ours)
        origin, run_dir = before.restore, before.run_dir
        override = before.override  # of a branch, which needs it to begin
    run_dir = None if path == default else run_dir
    config = dataclasses.replace(config, restore=origin, run_dir=run_dir, override=override)
    title = _title(config, ours, path) if ours and same_run else TITLE
    with rundir.writable(directory.path), naming_limits():  # it starts threads
        rundir.write_text(directory.path / rundir.SETTINGS, write_toml(config.saved(), title))
        monitor = Reporter(
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
    return Run(config, setup, directory, strategy, normalizer, counters, pool, monitor)


def _start_pool(
    config: Config,
    setup: Setup,
    theta: FloatArray,
    console: Terminal,
    hand_over: HandOver | None,
) -> tuple[Pool, SumNoise]:
    """Return the pool that plays, and the function that sums noise."""
    recipe, here = setup.recipe, partial(weighted_sum, threads=cores())
    if config.workers == 0:
        return InProcessPool(recipe, console.say), here
    if hand_over:
        recipe = hand_over(recipe)
    settings: dict[str, Any] = {
        "size": theta.size,
        "inputs": setup.normalized_inputs,
        "spread": config.sigma_adapt,
        "workers": config.workers,
        "timeout": config.rollout_timeout,
        "say": console.say,
    }
    if config.ray is None:
        return WorkerPool(recipe, members=config.n + 1, **settings), here
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


def _make_strategy(
    config: Config, ours: Checkpoint | None, theta: FloatArray, sum_noise: SumNoise
) -> Strategy:
    strategy = Strategy(theta, config, sum_noise)
    if ours is None:
        return strategy
    strategy.update = ours.counters.update
    before = settings_of(ours)
    if config.step_size == before.step_size:
        strategy.lr = ours.counters.lr  # as it has decayed
    if config.sigma == before.sigma:
        strategy.sigma = ours.counters.sigma
    if strategy.relative_sigma is not None and ours.spread is not None:
        strategy.relative_sigma[:] = ours.spread
    # The moments of another optimiser are of no use.
    if (config.optimizer_name, config.momentum > 0) == (before.optimizer_name, before.momentum > 0):
        try:
            strategy.optimizer.load(ours.optimizer)
        except (AttributeError, RuntimeError, TypeError, ValueError) as error:
            raise UsageError(f"--restore {config.restore}: is damaged ({error})") from error
    return strategy


def settings_of(ours: Checkpoint) -> Config:
    """Return the settings of a run's checkpoint."""
    assert ours.config is not None
    return ours.config


def _title(config: Config, ours: Checkpoint, path: Path) -> str:
    """Return the comments of a continued run's settings file: a line for each change so far."""
    lines: list[str] = []
    with suppress(OSError, ValueError):
        text = (path / rundir.SETTINGS).read_text("utf-8")
        lines += [line for line in text.splitlines() if line.startswith("# until ")]
    if line := change_line(config, settings_of(ours), ours.counters.update):
        lines.append(line)
    return "\n".join([CHANGED, *lines]) if lines else TITLE


def _make_counters(config: Config, ours: Checkpoint | None, *, same_run: bool) -> Counters:
    cap = config.training_cap
    if ours is None:
        return Counters(0, 0, 0, 0.0, cap, None, config.step_size, config.sigma)
    if config.variable_ep_len or config.adaptive_ep_len:
        cap = min(cap, ours.counters.max_episode_length)
    counters = ours.counters._replace(max_episode_length=cap)
    # A score belongs to a best.safetensors and to a way of scoring; without it, one is due.
    before = settings_of(ours)
    same_way = (config.eval_every is None) == (before.eval_every is None)
    alike = scored_alike(config, before)
    there = (Path(config.restore).parent / BEST).exists()
    if same_run and there and same_way and alike:
        return counters
    if not alike:
        counters = counters._replace(recent=[], missed_update=0, missed_return=None)
    return counters._replace(best_score=None, evaluated=0)
