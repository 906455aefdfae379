"""The study: asks Optuna for parameters, plays trials at once, and tells what came of them."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import connection
from pathlib import Path
from typing import NamedTuple

import optuna
from optuna.exceptions import StorageInternalError
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.engine import URL
from sqlalchemy.exc import SQLAlchemyError

from es.config import Config, flag
from es.errors import Interrupts, RunError, UsageError
from es.sweeps.running_trial import RunningTrial, end_trials
from es.sweeps.space import Space, base_params, trial_settings
from es.sweeps.trial import Play

STUDY = "study.db"
SWEPT = "swept"  # attribute of the study: each setting's value and distribution
FRAMES, REASON = "frames", "reason"  # attributes of a trial; the reason is why it failed
POLL_SECONDS = 0.1
FAILURES = 5  # of a command's trials, which end it where no trial has ever succeeded
SEEDS = 2**32  # that NumPy, which the sampler draws with, takes
OF_THE_COMMAND = {"workers", "run_dir", "silent"}  # settings that change no trial's value


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

    Trials that were interrupted are queued, to be continued under their numbers. Raises
    UsageError if the study is of another sweep, or its file cannot be used, and RunError if that
    fails later.
    """
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    path = sweep.directory / STUDY
    kind: type[RunError] = UsageError
    remedy = "; choose another --dir"
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
    names = (sweep.base.saved().keys() | sweep.space.keys()) - OF_THE_COMMAND
    ours = {name: repr((getattr(sweep.base, name), sweep.space.get(name))) for name in names}
    if not study.user_attrs:
        params = base_params(sweep.space, sweep.base)
        if params and not study.get_trials(deepcopy=False):
            study.enqueue_trial(params)
        study.set_user_attr(SWEPT, ours)
    elif differing := {name for name, _ in ours.items() ^ study.user_attrs.get(SWEPT, {}).items()}:
        raise UsageError(
            f"--dir {sweep.directory}: holds a sweep with other settings or another space of "
            f"{', '.join(map(flag, sorted(differing)))}; choose another --dir"
        )


def done_trials(study: optuna.Study) -> list[FrozenTrial]:
    """Return the trials that have ended.

    Earlier versions noted an interrupted trial as one that has failed for no reason.
    """
    ended = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)
    trials = study.get_trials(deepcopy=False, states=ended)
    return [each for each in trials if each.state != TrialState.FAIL or REASON in each.user_attrs]


def complete_trials(study: optuna.Study) -> list[FrozenTrial]:
    """Return the trials that have a value, in the order of their numbers."""
    return study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))


def best_trial(study: optuna.Study) -> FrozenTrial | None:
    """Return the complete trial of the highest value; of several, that with the fewest frames."""

    def rank(trial: FrozenTrial) -> tuple[float, int]:
        assert trial.value is not None
        return trial.value, -trial.user_attrs[FRAMES]

    return max(complete_trials(study), key=rank, default=None)  # the first of several


def search(
    study: optuna.Study,
    sweep: Sweep,
    play: Play,
    interrupts: Interrupts,
    report: Callable[[FrozenTrial], None],
    progress: Callable[[str], None],
) -> None:
    """Play trials until there are `total`; raise RunError if all have failed, and Interrupted.

    play: plays a trial, in a process of its own. progress: told how far the sweep is. report: told
    of every trial that has ended.
    """
    done = done_trials(study)
    before = len(done)
    running: list[RunningTrial] = []
    try:
        while running or len(done) < sweep.total:
            while len(running) < sweep.jobs and len(done) + len(running) < sweep.total:
                trial = study.ask(sweep.space)
                config = trial_settings(sweep.base, trial.params)
                directory = sweep.trial_directory(trial.number)
                last_step = study.get_trials(deepcopy=False)[trial.number].last_step
                running.append(RunningTrial(trial, config, directory, play, last_step or 0))
            state = ", ".join(each.describe() for each in running)
            progress(f"{len(done)} of {sweep.total} trials | {state}")
            with interrupts.allowed():
                connection.wait([each.process.sentinel for each in running], POLL_SECONDS)
            for each in [*running]:
                alive = each.process.is_alive()  # asked first, so that no row is missed
                each.follow()
                if not alive:
                    running.remove(each)
                    done.append(_tell(study, each))
                    report(done[-1])
            hopeless = all(each.state == TrialState.FAIL for each in done)
            if hopeless and len(done) - before >= FAILURES:
                reason = done[-1].user_attrs[REASON]
                raise RunError(f"the first {len(done)} trials have all failed, the last: {reason}")
    finally:
        end_trials(running)
        for each in running:
            if each.complete:  # the others are continued by the next command
                report(_tell(study, each))


def _tell(study: optuna.Study, ended: RunningTrial) -> FrozenTrial:
    outcome, trial = ended.outcome(), ended.trial
    value = outcome.get("value", math.nan)
    trial.set_user_attr(FRAMES, outcome.get("frames", ended.frames))
    if math.isfinite(value):
        return study.tell(trial, value)
    if ended.pruned and not outcome:
        return study.tell(trial, state=TrialState.PRUNED)
    reason = outcome.get("error", f"its mean return is {value}" if outcome else "interrupted")
    trial.set_user_attr(REASON, reason)
    return study.tell(trial, state=TrialState.FAIL)
