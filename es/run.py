"""A run on the disk: its directory and lock, how it starts, resumes or branches, how it ends."""

import dataclasses
import errno
import fcntl
import itertools
import math
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import IO, NamedTuple

from es.checkpoint import BEST, LATEST, Checkpoint, Counters, replace
from es.config import Config
from es.errors import Interrupted, RunError, UsageError, command
from es.rollouts.interface import counted
from es.settings import CHANGED, TITLE, change_line, scored_alike, write_toml

PROGRESS, EVALUATIONS = "progress.csv", "evaluations.csv"
SETTINGS, CURVE = "config.toml", "learning_curve.png"
VIDEOS = "videos"
LOCK = ".lock"
NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)  # of file systems without them
MISSED = 1  # exit status of a run that did not reach its target
UPDATES_AFTER_MISS = 10  # between a missed evaluation for the target and the next one, at most


class Outcome(NamedTuple):
    """How a run ended: exit status, directory, whether it reached its target, its last state."""

    status: int
    path: Path
    solved: bool
    checkpoint: Checkpoint


# ---- the directory ----


class InUseError(UsageError):
    """Another process writes to the directory."""


class RunDir:
    """A locked directory. The system frees the lock when the process ends."""

    def __init__(self, path: Path, lock: IO[str]) -> None:
        self.path, self._lock = path, lock

    def check(self) -> None:
        """Raise OSError if the directory was moved, deleted or replaced."""
        require_same(self._lock.fileno(), self.path / LOCK)

    def close(self) -> None:
        """Free the directory for another run."""
        self._lock.close()


def require_same(descriptor: int, path: Path) -> None:
    """Raise OSError unless `path` is the open file."""
    if not path.exists() or not os.path.samestat(os.fstat(descriptor), path.stat()):
        raise OSError(errno.ESTALE, "it was moved, deleted or replaced")


@contextmanager
def writable(path: Path, flag: str = "--run-dir") -> Iterator[None]:
    """Raise UsageError, which names the flag, if the path cannot be written."""
    try:
        yield
    except (OSError, ValueError, RuntimeError) as error:  # a null byte, a loop of links
        # mkdir finds a file in the place of a directory.
        in_the_way = isinstance(error, FileExistsError)
        reason = "not a directory" if in_the_way else getattr(error, "strerror", None) or error
        where = getattr(error, "filename2", None) or getattr(error, "filename", None) or path
        where = "" if str(where) == str(path) else f"{where}: "
        raise UsageError(
            f"{flag} {path}: cannot be written ({where}{reason}). Choose another path, or make room"
        ) from error


def open_directory(path: Path, flag: str = "--run-dir") -> RunDir:
    """Make the directory unless it exists, and lock it.

    Raise UsageError if it cannot be written, and InUseError if another process has locked it.
    Without locks in the file system, warn once.
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
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
            _warn_of_no_locks(path.absolute().parent, error.strerror)
        return RunDir(path, lock)


@cache  # so that it warns once
def _warn_of_no_locks(folder: Path, reason: str) -> None:
    with suppress(OSError):
        print(
            f"warning: {folder}: its file system has no locks ({reason}), so nothing keeps two "
            "runs from writing to one directory",
            file=sys.stderr,
            flush=True,
        )


def open_new(path: Path) -> RunDir:
    """Make and lock the first directory of path, path.2, path.3 ... that holds no run."""
    for number in itertools.count(1):
        with suppress(InUseError):
            directory = open_directory(path if number == 1 else _beside(path, f".{number}"))
            if not _holds_run(directory.path):
                return directory
            directory.close()
    raise AssertionError("numbers have no end")


def default_path(folder: str, env_name: str) -> Path:
    """Return the directory for an environment, without a colon: `scp` would take it for a host."""
    return Path(folder, env_name.replace(":", "."))


def destination(config: Config, checkpoint: Checkpoint | None) -> tuple[Path, bool]:
    """Return the directory to write to, and whether the run in it is resumed.

    A latest.safetensors resumes its run. Any other checkpoint of a run starts a new one beside it,
    and weights alone one at the default place. Raise UsageError if --run-dir is the directory of
    the run that another checkpoint belongs to.
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
        return (_beside(own, f"-from-{restored.stem}") if _holds_run(own) else default), False
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


def write_text(path: Path, text: str) -> None:
    """Replace a text file as a whole; raise OSError."""
    replace(path, text.encode("utf-8", errors="replace"))


# ---- the start ----


def settings_to_save(
    config: Config, checkpoint: Checkpoint | None, path: Path, *, resumed: bool
) -> Config:
    """Return the settings that repeat the run, from any folder.

    path: where it goes if no other run is there: repeated, it takes a number again.
    """
    if resumed and checkpoint and checkpoint.config:
        before = checkpoint.config
        return dataclasses.replace(
            config, restore=before.restore, run_dir=before.run_dir, override=before.override
        )
    default = path == default_path("checkpoints", config.env_name)
    origin = os.path.abspath(config.restore) if config.restore else ""
    return dataclasses.replace(config, restore=origin, run_dir=None if default else str(path))


def write_settings(path: Path, config: Config, resumed: Checkpoint | None) -> None:
    """Write config.toml. It lists what has changed since the run began, by the update."""
    changed: list[str] = []
    if resumed and resumed.config:
        with suppress(OSError, ValueError):
            lines = (path / SETTINGS).read_text("utf-8").splitlines()
            changed = [line for line in lines if line.startswith("# until ")]
        changed += filter(None, [change_line(config, resumed.config, resumed.counters.update)])
    with writable(path):
        title = "\n".join([CHANGED, *changed]) if changed else TITLE
        write_text(path / SETTINGS, write_toml(config.saved(), title))


def first_counters(config: Config, checkpoint: Checkpoint | None, *, resumed: bool) -> Counters:
    """Return the counters at the start. checkpoint: of a run, if it starts from one."""
    if checkpoint is None or checkpoint.config is None:
        return Counters(
            max_episode_length=config.training_cap, lr=config.step_size, sigma=config.sigma
        )
    counters, before, cap = checkpoint.counters, checkpoint.config, config.training_cap
    if config.variable_ep_len or config.adaptive_ep_len:
        cap = min(cap, counters.max_episode_length)
    counters = counters._replace(max_episode_length=cap)
    alike = scored_alike(config, before)
    if not alike:
        counters = counters._replace(recent=[], missed_update=0, missed_return=None)
    # A best score belongs to a best.safetensors and to a way of scoring.
    same_way = (config.eval_every is None) == (before.eval_every is None)
    has_best = resumed and (Path(config.restore).parent / BEST).exists()
    if not (alike and same_way and has_best):
        counters = counters._replace(best_score=None, evaluated=0)
    return counters


# ---- the end ----


def evaluation_due(config: Config, counters: Counters) -> bool:
    """Return whether --eval-every wants these parameters evaluated."""
    every, update = config.eval_every, counters.update
    return every is not None and update % every == 0 and update > counters.evaluated


def target_due(config: Config, counters: Counters) -> bool:
    """Return whether these parameters are to be evaluated for --target-return.

    The mean of the recent unperturbed returns has to reach the target. After an evaluation that
    missed it, this mean has to rise, or UPDATES_AFTER_MISS have to pass.
    """
    mean, missed = counters.recent_mean, counters.missed_return
    if config.target_return is None or not config.target_return <= mean < math.inf:
        return False
    next_update = counters.missed_update + UPDATES_AFTER_MISS
    return missed is None or mean > missed or counters.update >= next_update


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
    )


def solved_before(config: Config, checkpoint: Checkpoint) -> dict[str, float] | None:
    """Return the evaluation in which the checkpoint's policy reached the target, if it did."""
    solved, target = checkpoint.solved, config.target_return
    if not solved or target is None or not checkpoint.config:
        return None
    reached = min(solved["mean"], solved["second_mean"]) >= target
    return solved if reached and scored_alike(config, checkpoint.config) else None


def finished_before(config: Config, checkpoint: Checkpoint) -> str | None:
    """Return the limit or target that the checkpoint's run has reached already, in words."""
    if not checkpoint.config or evaluation_due(config, checkpoint.counters):
        return None
    if solved := solved_before(config, checkpoint):
        return f"a mean return of {solved['mean']:.2f} (--target-return)"
    if target_due(config, checkpoint.counters):
        return None
    return limit_reached(config, checkpoint.counters)


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
            command=resume if saved_before else "",
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
