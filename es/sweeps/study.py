"""The study: asks Optuna for parameters, plays trials at once, and tells what came of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing import connection
from pathlib import Path
from typing import Any, NamedTuple

import optuna
from optuna.exceptions import StorageInternalError
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.engine import URL
from sqlalchemy.exc import SQLAlchemyError

from es.config import Config, flag
from es.errors import RunError, UsageError
from es.interrupts import Interrupts
from es.sweeps.running_trial import Running, end
from es.sweeps.space import Space, settings, start

STUDY = "study.db"
# Attributes of the study, and of a trial.
BASE, SPACE = "base", "space"
FRAMES, REASON, INTERRUPTED = "frames", "reason", "interrupted"
POLL_SECONDS = 0.1
FAILURES = 5  # of a command's trials, which end it where no trial has ever succeeded
SEEDS = 2**32  # that NumPy, which the sampler draws with, takes
OF_THE_COMMAND = ("workers", "run_dir", "silent")  # settings that change no trial's value


class Sweep(NamedTuple):
    """What holds for all trials. total: how many; jobs: at once; seed: of the sampler."""

    base: Config
    space: Space
    directory: Path
    total: int
    jobs: int
    seed: int | None = None


@contextmanager
def opened(sweep: Sweep) -> Iterator[optuna.Study]:
    """The study in the sweep's directory, or a new one: of this sweep, or UsageError.

    What was running when an older process was killed is queued again. What goes wrong with the file
    later is a RunError.
    """
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    path = sweep.directory / STUDY
    kind: type[RunError] = UsageError
    remedy = "; choose another --dir"
    try:
        url = URL.create("sqlite", database=str(path)).render_as_string()
        storage = optuna.storages.RDBStorage(url)
        try:
            study = _open(storage, sweep)
            kind, remedy = RunError, ""
            yield study
        finally:
            storage.remove_session()
            storage.engine.dispose()
    except (SQLAlchemyError, StorageInternalError) as error:
        reason = str(error.__cause__ or error).splitlines()[0]
        raise kind(f"--dir {sweep.directory}: {STUDY} cannot be used ({reason}){remedy}") from error


def _open(storage: optuna.storages.RDBStorage, sweep: Sweep) -> optuna.Study:
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
            _queue_again(study, trial)
    # A sampler that begins anew would choose again what it chose at first.
    seed = None if sweep.seed is None else (sweep.seed + len(trials)) % SEEDS
    study.sampler = optuna.samplers.TPESampler(seed=seed)
    return study


def _identify(study: optuna.Study, sweep: Sweep) -> None:
    """Notes what is swept, or compares it; UsageError where it is something else."""
    base = {k: v for k, v in sweep.base.saved().items() if k not in OF_THE_COMMAND}
    space = {name: repr(dimension) for name, dimension in sweep.space.items()}
    ours: Mapping[str, Mapping[str, Any]] = {BASE: base, SPACE: space}
    theirs = study.user_attrs
    if SPACE not in theirs:  # the last to be noted
        if not study.get_trials(deepcopy=False) and (params := start(sweep.space, sweep.base)):
            study.enqueue_trial(params)
        for key, value in ours.items():
            study.set_user_attr(key, value)
        return
    for key, what in ((BASE, "settings"), (SPACE, "a space")):
        differing = sorted(
            name
            for name in ours[key].keys() | theirs[key].keys()
            if ours[key].get(name) != theirs[key].get(name)
        )
        if differing:
            raise UsageError(
                f"--dir {sweep.directory}: holds a sweep with {what} of other "
                f"{', '.join(flag(name) for name in differing)}; choose another --dir"
            )


def trial_name(number: int) -> str:
    """Of a trial's directory."""
    return f"trial-{number:04}"


def is_done(trial: FrozenTrial) -> bool:
    """Whether a trial is one of the total: it has ended by itself."""
    return trial.state.is_finished() and INTERRUPTED not in trial.user_attrs


def best_of(study: optuna.Study) -> FrozenTrial | None:
    """The complete trial of the highest value; of several, that with the fewest frames."""
    complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))

    def rank(trial: FrozenTrial) -> tuple[float, int, int]:
        assert trial.value is not None
        return trial.value, -trial.user_attrs[FRAMES], -trial.number

    return max(complete, key=rank, default=None)


def search(
    study: optuna.Study,
    sweep: Sweep,
    progress: Callable[[str], None],
    interrupts: Interrupts,
    report: Callable[[FrozenTrial], None],
) -> None:
    """Plays trials until there are `total`; raises RunError where all have failed, and Interrupted.

    progress: told how far it is. report: told of every trial that has ended.
    """
    distributions = {name: each.distribution() for name, each in sweep.space.items()}
    done = [trial for trial in study.get_trials(deepcopy=False) if is_done(trial)]
    before = len(done)
    running: list[Running] = []
    try:
        while running or len(done) < sweep.total:
            while len(running) < sweep.jobs and len(done) + len(running) < sweep.total:
                trial = study.ask(distributions)
                config = settings(sweep.space, sweep.base, trial.params)
                directory = sweep.directory / trial_name(trial.number)
                running.append(Running(trial, config, directory))
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
        end(running)
        for each in running:
            if each.complete:
                report(_tell(study, each))
            else:
                _queue_again(study, each.trial)


def _tell(study: optuna.Study, ended: Running) -> FrozenTrial:
    outcome, trial = ended.outcome(), ended.trial
    value = outcome.get("value", math.nan)
    trial.set_user_attr(FRAMES, outcome.get("frames", ended.frames))
    if math.isfinite(value):
        study.tell(trial, value)
    elif ended.pruned and not outcome:
        study.tell(trial, state=TrialState.PRUNED)
    else:
        reason = outcome.get("error", f"its mean return is {value}" if outcome else "interrupted")
        trial.set_user_attr(REASON, reason)
        study.tell(trial, state=TrialState.FAIL)
    return study.get_trials(deepcopy=False)[trial.number]


def _queue_again(study: optuna.Study, trial: optuna.Trial | FrozenTrial) -> None:
    """Has an interrupted trial's parameters played before others, as another trial."""
    if trial.params:
        study.enqueue_trial(trial.params)
    optuna.Trial(study, trial._trial_id).set_user_attr(INTERRUPTED, True)
    study.tell(trial.number, state=TrialState.FAIL)
