"""A run on the disk: its directory and lock, how it starts, resumes or branches, how it ends."""

import dataclasses
import fcntl
import itertools
import math
import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

from es.algorithm.strategy import Strategy
from es.checkpoint import BEST, LATEST, Checkpoint, Counters, replace, writable
from es.config import FIELDS, PHASE_STARTS, Config, flag_with_value
from es.errors import (
    Interrupted,
    RunError,
    UsageError,
    command,
    counted,
    in_one_line,
    naming_limits,
)
from es.policy import Policy
from es.reports import NO_CURVE, PROGRESS, SETTINGS
from es.reports.console import Console, RunLimits
from es.reports.log import Log, require_wandb, start_wandb
from es.reports.plot import Curve
from es.reports.video import Recorder, flags_to_watch
from es.rollouts.player import InProcessPool
from es.rollouts.pool import WorkerPool
from es.rollouts.processes import PRELOAD, cores, modules_for_workers
from es.rollouts.tasks import Pool, Recipe
from es.settings import changes, read_toml, scored_alike, write_toml

LOCK = ".lock"
TITLE = "# The settings of this run: repeat it with --config and this file."
CHANGED = "# The last settings of this run, which do not repeat it. Before, it had others:"
MISSED = 1  # exit status of a run that did not reach its target
UPDATES_AFTER_MISS = 10  # between a missed evaluation for the target and the next one, at most

AdaptRecipe = Callable[[Recipe], Recipe]


class StartedRun(NamedTuple):
    """What trains and reports a run, in the directory `path`."""

    policy: Policy
    strategy: Strategy
    counters: Counters
    pool: Pool
    log: Log
    path: Path


class Outcome(NamedTuple):
    """How a run ended: exit status, directory, whether it reached its target, its last state.

    phase_ended: whether it goes on with the next phase of its settings.
    """

    status: int
    path: Path
    solved: bool
    checkpoint: Checkpoint
    phase_ended: bool = False


# ---- the directory ----


class InUseError(UsageError):
    """Another process writes to the directory."""


def open_directory(path: Path, flag: str = "--run-dir") -> IO[str]:
    """Make the directory unless it exists, and lock it until the file that is returned is closed.

    The system frees the lock when the process ends. Raise UsageError if the directory cannot be
    written, and InUseError if another process has locked it.
    """
    with writable(path, flag):
        path.mkdir(parents=True, exist_ok=True)
        lock = (path / LOCK).open("a")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        lock.close()
        raise InUseError(
            f"{flag} {path}: another run writes there. Wait for it or choose another path"
        ) from error
    except OSError:  # some file systems have no locks
        pass
    return lock


def open_new(path: Path) -> tuple[Path, IO[str]]:
    """Make and lock the first directory of path, path.2, path.3 ... that holds no run."""
    for number in itertools.count(1):
        directory = path if number == 1 else _beside(path, f".{number}")
        with suppress(InUseError):
            lock = open_directory(directory)
            if not _holds_run(directory):
                return directory, lock
            lock.close()
    raise AssertionError


def default_path(folder: str, env_name: str) -> Path:
    """Return the directory for an environment, without a colon: `scp` would take it for a host."""
    return Path(folder, env_name.replace(":", "."))


def destination(config: Config, checkpoint: Checkpoint | None) -> tuple[Path, bool]:
    """Return the directory to write to, and whether the run in it is resumed.

    A latest.safetensors resumes its run, unless --run-dir names another place. Any other checkpoint
    starts a new run beside its own, and weights alone start one at the default place. Raise
    UsageError if --run-dir is the directory of such a checkpoint's own run.
    """
    default = default_path("checkpoints", config.env_name)
    chosen = Path(config.run_dir) if config.run_dir else None
    if checkpoint is None or checkpoint.config is None:
        return chosen or default, False
    restored = Path(config.restore)
    own = restored.parent
    same = chosen is None or chosen.resolve() == own.resolve()
    if restored.name == LATEST and same:
        return own, True
    if chosen is None:
        of_run = (own / PROGRESS).exists()  # best.safetensors may be a copy in any folder
        return (_beside(own, f"-from-{restored.stem}") if of_run else default), False
    if same:
        raise UsageError(
            f"--run-dir {chosen}: holds the run of --restore {restored}. Choose another directory, "
            f"or restore its {LATEST} to continue it"
        )
    return chosen, False


def _holds_run(path: Path) -> bool:
    return any((path / name).exists() for name in (LATEST, BEST, PROGRESS, SETTINGS))


def _beside(path: Path, suffix: str) -> Path:
    """Return the path with a suffix to its name."""
    named = path if path.name not in ("", "..") else path.resolve()
    return named.with_name(named.name + suffix)


# ---- the start ----


def start(
    policy: Policy,
    checkpoint: Checkpoint | None,
    console: Console,
    stack: ExitStack,
    adapt_recipe: AdaptRecipe | None,
    *,
    phase_begins: bool,
) -> StartedRun:
    """Start workers and reports, and open the directory; `stack` ends all but the reports.

    phase_begins: whether this run goes on in its next phase.
    """
    config = policy.config
    if config.wandb:
        require_wandb()
    path, resumed = destination(config, checkpoint)
    if checkpoint and not checkpoint.config:
        checkpoint = None  # weights alone, which the policy has
    pool = start_pool(policy, console, adapt_recipe)
    stack.callback(pool.close)
    # The workers start while the optimiser's modules are imported here.
    strategy = Strategy(policy.theta, config, threads=cores())
    if checkpoint:
        restore_strategy(strategy, checkpoint, config)
    directory, lock = (path, open_directory(path)) if resumed else open_new(path)
    stack.enter_context(lock)
    if directory != path:
        console.say(f"{path} holds another run: this one goes to {directory}.")
    counters = first_counters(config, checkpoint, resumed=resumed)
    counters = counters._replace(lr=strategy.lr, sigma=strategy.sigma)  # may be new
    config = settings_to_save(config, checkpoint if resumed else None, path)
    recorder = None
    with writable(directory), naming_limits():  # it starts threads
        if config.video_every:
            flags = config.flags_to_restore
            recorder = Recorder(directory, flags, console.say, console.warn)
        log = Log(
            directory,
            counters,
            settings=config.hyperparameters(),
            say=console.say,
            warn=console.warn,
            curve=None if os.environ.get(NO_CURVE) else Curve(directory),
            recorder=recorder,
            wandb=start_wandb(directory, config.saved(), console.say) if config.wandb else None,
        )
    if phase_begins:  # config.toml has its table
        console.say(f"{describe_phase(config, counters.phase)}\n")
    else:
        write_settings(directory, config, checkpoint if resumed else None)
        console.say(
            f"Num params in network: {policy.theta.size}\nSeed: {config.seed}\n"
            f"Run directory: {directory}\n"
        )
    policy = dataclasses.replace(policy, config=config)
    return StartedRun(policy, strategy, counters, pool, log, directory)


def start_pool(policy: Policy, console: Console, adapt_recipe: AdaptRecipe | None) -> Pool:
    """Return the pool that plays."""
    config, recipe, workers = policy.config, policy.recipe, policy.config.workers
    if workers == 0:
        return InProcessPool(recipe)
    if adapt_recipe:
        recipe = adapt_recipe(recipe)
    settings: dict[str, Any] = {
        "size": policy.theta.size,
        "inputs": policy.network["inputs"] if policy.normalizer else 0,
        "relative_sigma": config.sigma_adapt,
        "timeout": config.rollout_timeout,
        "say": console.say,
    }
    if config.ray is None:
        if workers is None:
            workers = config.n + 1  # one for each perturbation and one for the policy itself
        return WorkerPool(recipe, workers=cores() if workers == "auto" else workers, **settings)
    from es.cluster.pool import open_ray

    console.say(f"Connecting to Ray (--ray {config.ray}) ...")
    return open_ray(
        config.ray,
        recipe,
        workers=None if workers == "auto" else workers,
        patience=config.ray_timeout,
        preload=modules_for_workers(config.net),
        variables={PRELOAD: config.env_name},
        **settings,
    )


def restore_strategy(strategy: Strategy, checkpoint: Checkpoint, config: Config) -> None:
    """Give the strategy the state of a checkpoint, but for what other settings replace."""
    before, counters = checkpoint.config, checkpoint.counters
    assert before is not None
    strategy.update = counters.update
    if config.step_size == before.step_size:
        strategy.lr = counters.lr  # as it has decayed
    if config.sigma == before.sigma:
        strategy.sigma = counters.sigma
    if strategy.relative_sigma is not None and checkpoint.relative_sigma is not None:
        strategy.relative_sigma[:] = checkpoint.relative_sigma
    # The moments of another optimiser are of no use.
    if (config.optimizer, config.momentum > 0) == (before.optimizer, before.momentum > 0):
        try:
            strategy.optimizer.load(checkpoint.optimizer)
        except ValueError as error:
            raise UsageError(f"--restore {config.restore}: is damaged ({error})") from error


def settings_to_save(config: Config, resumed: Checkpoint | None, path: Path) -> Config:
    """Return the settings that repeat the run, from any folder.

    resumed: the checkpoint of a run that goes on in its directory. path: where a new run goes if no
    other run is there. A repeated run then takes a number of its own.
    """
    if resumed and (before := resumed.config):
        return dataclasses.replace(
            config, restore=before.restore, run_dir=before.run_dir, override=before.override
        )
    default = path == default_path("checkpoints", config.env_name)
    origin = os.path.abspath(config.restore) if config.restore else ""
    return dataclasses.replace(config, restore=origin, run_dir=None if default else str(path))


def write_settings(path: Path, config: Config, resumed: Checkpoint | None) -> None:
    """Write config.toml. Its comments list what has changed since the run began, by update.

    With phases, the settings of the algorithm stay as they were when the run began, unless the user
    changes some.
    """
    changed: list[str] = []
    settings = config.saved()
    if resumed and resumed.config:
        former = changes(config, resumed.config)
        if config.phase and not former:
            with suppress(UsageError):  # the file was deleted or damaged
                began = read_toml(str(path / SETTINGS), SETTINGS)
                layers = {
                    name: began if field.metadata["algorithm"] else settings
                    for name, field in FIELDS.items()
                }
                settings = {name: layer[name] for name, layer in layers.items() if name in layer}
        with suppress(OSError, ValueError):
            lines = (path / SETTINGS).read_text("utf-8").splitlines()
            changed = [line for line in lines if line.startswith("# until ")]
        if former:
            words = ", ".join(flag_with_value(name, value) for name, value in former)
            changed.append(in_one_line(f"# until update {resumed.counters.update}: {words}"))
    title = "\n".join([CHANGED, *changed]) if changed else TITLE
    with writable(path):
        replace(path / SETTINGS, write_toml(settings, title).encode())


def first_counters(config: Config, checkpoint: Checkpoint | None, *, resumed: bool) -> Counters:
    """Return the counters at the start. checkpoint: of the run that it starts from."""
    cap = min(config.training_ep_len or config.max_episode_length, config.max_episode_length)
    if checkpoint is None:
        return Counters(max_episode_length=cap)
    counters, before = checkpoint.counters, checkpoint.config
    assert before is not None
    if config.variable_ep_len or config.adaptive_ep_len:
        cap = min(cap, counters.max_episode_length)
    counters = counters._replace(max_episode_length=cap, phase=phases_begun(config, checkpoint))
    counters = _for_target(counters, config, before)
    alike = scored_alike(config, before)
    if not alike:
        counters = counters._replace(recent=[], missed_update=0, missed_return=None)
    # A best score belongs to a best.safetensors and to a way of scoring.
    same_way = (config.eval_every is None) == (before.eval_every is None)
    has_best = resumed and (Path(config.restore).parent / BEST).exists()
    if not (alike and same_way and has_best):
        counters = counters._replace(best_score=None, evaluated=0)
    return counters


def _for_target(counters: Counters, config: Config, before: Config) -> Counters:
    """Return the counters, without the evaluation that missed another target than this."""
    if config.target_return == before.target_return:
        return counters
    return counters._replace(missed_update=0, missed_return=None)


def phases_begun(config: Config, checkpoint: Checkpoint | None) -> int:
    """Return how many of the phases have begun. checkpoint: of the run that it starts from."""
    same = checkpoint and checkpoint.config and config.phase == checkpoint.config.phase
    return checkpoint.counters.phase if checkpoint and same else 0


# ---- what is due ----


def evaluation_due(config: Config, counters: Counters) -> bool:
    """Return whether --eval-every wants these parameters evaluated."""
    every, update = config.eval_every, counters.update
    return every is not None and update % every == 0 and update > counters.evaluated


def target_due(config: Config, counters: Counters) -> bool:
    """Return whether these parameters are to be evaluated for --target-return.

    The mean of the recent unperturbed returns has to reach the target. After an evaluation that
    missed it, this mean has to rise, or UPDATES_AFTER_MISS updates have to pass. Before the last
    phase it is not due, since the rules may differ from the target's.
    """
    mean, missed = counters.recent_mean, counters.missed_return
    if config.target_return is None or not config.target_return <= mean < math.inf:
        return False
    if counters.phase < len(config.phase):
        return False
    next_update = counters.missed_update + UPDATES_AFTER_MISS
    return missed is None or mean > missed or counters.update >= next_update


def phase_due(config: Config, counters: Counters) -> bool:
    """Return whether the next phase of the settings begins."""
    if counters.phase == len(config.phase):
        return False
    table = config.phase[counters.phase]
    return (
        counters.update >= table.get("after_updates", math.inf)
        or counters.frames >= table.get("after_frames", math.inf)
        or counters.recent_mean >= table.get("after_return", math.inf)
    )


def describe_phase(config: Config, number: int) -> str:
    """Return what a phase changes, in words."""
    table = config.phase[number - 1]
    names = (name for name in table if name not in PHASE_STARTS)
    changed = (flag_with_value(name, table[name]) for name in names)
    return f"Phase {number} of {len(config.phase)}: {', '.join(changed)}"


def next_phase(path: Path, saved: Checkpoint) -> tuple[Config, Checkpoint]:
    """Return the settings of the phase that begins, and the checkpoint that it starts from.

    path: the directory of the run, which goes on there. saved: the state at the end of a phase.
    """
    counters, before = saved.counters, saved.config
    assert before is not None
    # As a restored run, it goes on in its directory.
    config = before.in_phase(counters.phase)
    config = dataclasses.replace(config, restore=str(path / LATEST), run_dir=None)
    table = before.phase[counters.phase]
    anew = {name: table[name] for name in ("lr", "sigma") if table.get(name)}  # not as decayed
    counters = counters._replace(phase=counters.phase + 1, **anew)
    return config, saved._replace(counters=counters)


def limit_reached(config: Config, counters: Counters) -> str | None:
    """Return the limit at which the run ends, in words, if it is reached."""
    if counters.update >= config.max_gradient_updates:
        return f"{counters.update} updates (--max-gradient-updates)"
    if config.max_frames is not None and counters.frames >= config.max_frames:
        return f"{counters.frames} frames (--max-frames)"
    if config.max_minutes is not None and counters.wall_seconds >= 60 * config.max_minutes:
        return f"{counters.wall_seconds / 60:.1f} minutes (--max-minutes)"
    return None


def update_follows(config: Config, counters: Counters) -> bool:
    """Return whether the next thing to do is an update."""
    return not (
        evaluation_due(config, counters)
        or target_due(config, counters)
        or limit_reached(config, counters)
        or phase_due(config, counters)
    )


def limits(config: Config, counters: Counters, path: Path) -> RunLimits:
    """Return where the run in the directory `path` ends, for the live view."""
    updates = config.max_gradient_updates
    possible = {
        "update": None if updates == Config.max_gradient_updates else updates,  # it is no aim
        "frames": config.max_frames,
        "minutes": config.max_minutes,
    }
    caps = {name: limit for name, limit in possible.items() if limit is not None}
    title = config.env_name
    if counters.phase:
        title += f", phase {counters.phase} of {len(config.phase)}"
    return RunLimits(title, path, config.target_return, caps, counters)


def finished_before(config: Config, checkpoint: Checkpoint) -> tuple[str, bool] | None:
    """Return what the checkpoint's run has already reached, in words, and if that is the target."""
    before, counters, solved = checkpoint.config, checkpoint.counters, checkpoint.solved
    if not before or evaluation_due(config, counters):
        return None
    if solved and (target := config.target_return) is not None:
        reached = min(solved["mean"], solved["second_mean"]) >= target
        if reached and scored_alike(config, before):
            return f"a mean return of {solved['mean']:.2f} (--target-return)", True
    due = target_due(config, _for_target(counters, config, before))
    limit = None if due else limit_reached(config, counters)
    return (limit, False) if limit else None


def command_for(config: Config, checkpoint: Path, *flags: str) -> str:
    """Return the command that continues or plays a checkpoint of this run."""
    return command("main", *flags, "--restore", checkpoint, *config.flags_to_restore)


def last_line(
    config: Config,
    counters: Counters,
    solved: dict[str, float] | None,
    path: Path,
    interrupted: Interrupted | None,
    unwritten: Mapping[str, str],
) -> tuple[int, str]:
    """Return the exit status and the last line of a run in the directory `path`.

    unwritten: why files could not be written, by file name. Raise RunError if there are any.
    """
    latest = path / LATEST
    cluster = ("--ray", config.ray) if config.ray else ()  # not saved, and probably wanted again
    resume = command_for(config, latest, *cluster)
    done = (
        f"{counted(counters.update, 'update')}, {counted(counters.episodes, 'episode')}, "
        f"{counted(counters.frames, 'frame')}, {counters.wall_seconds:.1f} s"
    )
    if unwritten:
        reasons, names = ", ".join(sorted({*unwritten.values()})), ", ".join(unwritten)
        saved_before = latest.exists()
        error = RunError(
            f"--run-dir {path}: after {done}, {names} could not be written ({reasons}). The files "
            f"there are older, or cut off{'. Continue from there:' if saved_before else ''}",
            f"  {resume}" if saved_before else "",
        )
        if interrupted:
            error.status = interrupted.status
        raise error
    if interrupted:
        return interrupted.status, f"Interrupted after {done}. Continue:\n  {resume}"
    saved, target = f", saved as {latest}", config.target_return
    if solved:
        return 0, (
            f"Solved: mean {solved['mean']:.2f}, standard deviation {solved['std']:.2f} over "
            f"{counted(config.eval_episodes, 'episode')}, mean {solved['second_mean']:.2f} over as "
            f"many others (target {solved['target']:g}) after {done}{saved}"
        )
    if target is not None:
        return MISSED, f"Target not reached: no mean return of {target:g} in {done}{saved}"
    return 0, f"Finished: {done}{saved}"


def how_to_watch(config: Config, checkpoint: Path, *, drawable: bool) -> str:
    """Return the command that shows a policy or, if its environment has no pictures, plays it."""
    what = "Watch it:" if drawable else "Play it (its environment has no render mode rgb_array):"
    return f"{what}\n  {command_for(config, checkpoint, *flags_to_watch(drawable=drawable))}"
