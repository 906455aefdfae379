"""The study: asks Optuna for parameters, plays trials at once, and tells it their values."""

import dataclasses
import math
import multiprocessing
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import connection
from pathlib import Path
from typing import Any, NamedTuple

import optuna
from optuna.exceptions import StorageInternalError
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.engine import URL
from sqlalchemy.exc import SQLAlchemyError

from es.checkpoint import LATEST
from es.config import Config, flag
from es.errors import Interrupts, RunError, UsageError, limit_error
from es.rollouts.processes import end_group, for_helpers
from es.sweeps.space import Space, base_params, trial_settings
from es.sweeps.trial import MILESTONES, Failed, Milestone, Value, run_trial

STUDY = "study.db"
SWEPT = "swept"  # attribute of the study: each setting's value and distribution
STARTED, FRAMES, REASON = "started", "frames", "reason"  # attributes of a trial
FAILURES = 5  # of a command's trials, which end it where no trial has ever succeeded
SEEDS = 2**32  # that NumPy, which the sampler draws with, takes
CLOSE_SECONDS = 2.2


class Sweep(NamedTuple):
    """What holds for all trials.

    total: how many; jobs: at once; seed: of the sampler. drawable: whether the environment is.
    """

    base: Config
    space: Space
    directory: Path
    total: int
    jobs: int
    seed: int | None = None
    drawable: bool = True

    def trial_directory(self, number: int) -> Path:
        """Return where a trial is written."""
        return self.directory / f"trial-{number:04}"


@contextmanager
def open_study(sweep: Sweep) -> Iterator[optuna.Study]:
    """Open the study in the sweep's directory, or a new one.

    Trials that were interrupted are queued, to be continued under their numbers. Raise UsageError
    if the study is of another sweep, or its file cannot be used, and RunError if that fails later.
    """
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    path = sweep.directory / STUDY
    kind: type[RunError] = UsageError
    remedy = ". Choose another --dir"
    try:
        url = URL.create("sqlite", database=str(path)).render_as_string()
        storage = optuna.storages.RDBStorage(url)
        try:
            study = _load(storage, sweep)
            kind, remedy = RunError, ""
            yield study
        finally:
            storage.remove_session()
            storage.engine.dispose()
    except (SQLAlchemyError, StorageInternalError) as error:
        reason = str(error.__cause__ or error).splitlines()[0]
        raise kind(f"--dir {sweep.directory}: {STUDY} cannot be used ({reason}){remedy}") from error


def _load(storage: optuna.storages.RDBStorage, sweep: Sweep) -> optuna.Study:
    study = optuna.create_study(
        storage=storage,
        study_name="sweep",
        direction="maximize",
        load_if_exists=True,
        # A median of complete trials, since learning may begin late and at once: rungs that only a
        # fraction passes would end most trials on the plateau that comes before.
        pruner=optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=3),
    )
    _identify(study, sweep)
    trials = study.get_trials(deepcopy=False)
    for trial in trials:
        if trial.state == TrialState.RUNNING:
            storage.set_trial_state_values(trial._trial_id, TrialState.WAITING)
    # A sampler that begins anew would choose again what it chose at first.
    seed = None if sweep.seed is None else (sweep.seed + len(trials)) % SEEDS
    study.sampler = optuna.samplers.TPESampler(seed=seed)
    return study


def _identify(study: optuna.Study, sweep: Sweep) -> None:
    """Note what is swept in a new study; raise UsageError if an older one is of another sweep."""
    of_the_command = {"workers", "silent"}  # they change no trial's value
    names = (sweep.base.saved().keys() | sweep.space.keys()) - of_the_command
    swept = {name: repr((getattr(sweep.base, name), sweep.space.get(name))) for name in names}
    if not study.user_attrs:
        if params := base_params(sweep.space, sweep.base):
            study.enqueue_trial(params)
        study.set_user_attr(SWEPT, swept)
    elif differing := swept.items() ^ study.user_attrs[SWEPT].items():
        flags = sorted({flag(name) for name, _ in differing})
        raise UsageError(
            f"--dir {sweep.directory} holds a sweep with other settings or another space of "
            f"{', '.join(flags)}. Choose another --dir"
        )


def done_trials(study: optuna.Study) -> list[FrozenTrial]:
    """Return the trials that have ended, in the order of their numbers."""
    ended = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)
    return study.get_trials(deepcopy=False, states=ended)


def complete_trials(study: optuna.Study) -> list[FrozenTrial]:
    """Return the trials that have a value, in the order of their numbers."""
    return study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))


def best_trial(study: optuna.Study) -> FrozenTrial | None:
    """Return the complete trial of the highest value; of several, that with the fewest frames."""

    def rank(trial: FrozenTrial) -> tuple[float, int]:
        assert trial.value is not None
        return trial.value, -trial.user_attrs[FRAMES]

    return max(complete_trials(study), key=rank, default=None)  # the first of several


class RunningTrial:
    """A trial that plays in a process, which sends milestones and its end over the link.

    frames: training steps so far. pruned: whether it was ended since others were better.
    """

    def __init__(self, trial: optuna.Trial, process: Any, link: connection.Connection) -> None:
        self.trial, self.process, self.link = trial, process, link
        self.frames, self.pruned = 0, False
        self._mean: float | None = None
        self._end: Value | Failed | None = None

    def receive(self) -> bool:
        """Take a message; return whether the trial goes on."""
        try:
            message: Milestone | Value | Failed = self.link.recv()
        except (EOFError, OSError):
            return False
        self.frames = getattr(message, "frames", self.frames)
        if not isinstance(message, Milestone):
            self._end = message
            return False
        self._mean = message.mean
        self.trial.report(message.mean, message.number)
        # A trial that has come to its end is not given up.
        self.pruned = message.number < MILESTONES and self.trial.should_prune()
        with suppress(OSError):  # it has died, which the next `receive` notices
            self.link.send(not self.pruned)
        return True

    def describe(self) -> str:
        """Return how far it has come, in a few words."""
        so_far = "" if self._mean is None else f" {self.frames:,} frames, {self._mean:.2f}"
        return f"trial {self.trial.number}{so_far}"

    def tell(self, study: optuna.Study) -> FrozenTrial:
        """Wait for the process; tell Optuna how the trial has ended."""
        self.process.join()
        self.kill()
        self.trial.set_user_attr(FRAMES, self.frames)
        if isinstance(self._end, Value) and math.isfinite(self._end.mean):
            return study.tell(self.trial, self._end.mean)
        if self.pruned and self._end is None:
            return study.tell(self.trial, state=TrialState.PRUNED)
        if isinstance(self._end, Failed):
            reason = self._end.reason
        elif self._end:
            reason = f"its mean return is {self._end.mean}"
        else:
            reason = f"its process died (exit code {self.process.exitcode})"
        self.trial.set_user_attr(REASON, reason)
        return study.tell(self.trial, state=TrialState.FAIL)

    def interrupt(self) -> None:
        """Have the process save its run and end."""
        with suppress(ProcessLookupError):
            if self.process.is_alive() and self.process.pid:
                os.kill(self.process.pid, signal.SIGINT)

    def kill(self) -> None:
        """End at once what its environment has started, and its process if it is not dead yet."""
        if self.process.pid:
            end_group(self.process.pid)
        self.process.kill()  # it may have no group yet


def start_trial(study: optuna.Study, sweep: Sweep) -> RunningTrial:
    """Ask Optuna for a trial and start its process.

    A trial that was interrupted continues from its latest checkpoint, if it has one.
    """
    trial = study.ask(sweep.space)
    directory = sweep.trial_directory(trial.number)
    resumed = STARTED in trial.user_attrs and (directory / LATEST).exists()
    if not resumed:
        shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(exist_ok=True)
    trial.set_user_attr(STARTED, True)
    config = trial_settings(sweep.base, trial.params)
    restore = str(directory / LATEST) if resumed else ""
    config = dataclasses.replace(config, silent=True, run_dir=str(directory), restore=restore)
    ours, theirs = connection.Pipe()
    with theirs:
        process = multiprocessing.get_context("forkserver").Process(
            target=run_trial,
            args=(config, directory, theirs),
            kwargs={
                "resumed": resumed,
                "reported": study.get_trials(deepcopy=False)[trial.number].last_step or 0,
            },
        )
        try:
            with for_helpers():
                process.start()
        except EOFError as error:  # as it cannot start another process
            raise limit_error("the fork server has ended") from error
    return RunningTrial(trial, process, ours)


def search(
    study: optuna.Study,
    sweep: Sweep,
    interrupts: Interrupts,
    report: Callable[[FrozenTrial], None],
    progress: Callable[[str], None],
    start: Callable[[optuna.Study, Sweep], RunningTrial] = start_trial,
) -> None:
    """Play trials until there are `total`; raise RunError if all have failed, and Interrupted.

    report: called with every trial that has ended. progress: called with the sweep's state in
    words. start: starts a trial.
    """
    done = done_trials(study)
    before = len(done)
    running: dict[Any, RunningTrial] = {}
    try:
        while running or len(done) < sweep.total:
            while len(running) < sweep.jobs and len(done) + len(running) < sweep.total:
                started = start(study, sweep)
                running[started.link] = started
            state = ", ".join(each.describe() for each in running.values())
            progress(f"{len(done)} of {sweep.total} trials | {state}")
            with interrupts.allowed():
                ready = connection.wait([*running])
            for link in ready:
                if not running[link].receive():
                    done.append(running.pop(link).tell(study))
                    report(done[-1])
            hopeless = all(each.state == TrialState.FAIL for each in done)
            if hopeless and len(done) - before >= FAILURES:
                reason = done[-1].user_attrs[REASON]
                raise RunError(f"the first {len(done)} trials have all failed, the last: {reason}")
    finally:
        end_trials([*running.values()])


def end_trials(trials: Sequence[RunningTrial]) -> None:
    """End trials within CLOSE_SECONDS, with their runs saved: the next command continues them."""
    for each in trials:
        each.interrupt()
    deadline = time.monotonic() + CLOSE_SECONDS
    for each in trials:
        each.process.join(max(0.0, deadline - time.monotonic()))
        each.kill()
        each.process.join()
