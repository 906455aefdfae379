"""The study: ask Optuna for parameters, play trials in parallel, tell it their values, report."""

import csv
import dataclasses
import io
import math
import multiprocessing
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import connection
from pathlib import Path
from typing import Any, NamedTuple

import optuna
from optuna.exceptions import StorageInternalError
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.engine import URL
from sqlalchemy.exc import SQLAlchemyError

from es.checkpoint import LATEST, replace
from es.config import Config, flag
from es.errors import Interrupts, RunError, UsageError, command, counted, in_one_line
from es.reports import plot
from es.reports.console import Console
from es.rollouts.processes import end_group, starting_helper
from es.run import how_to_watch
from es.settings import write_toml
from es.sweeps.space import Space, base_params
from es.sweeps.trial import MILESTONES, Milestone, Value, run_trial, trial_settings

STUDY, BEST_SETTINGS, TABLE, IMPORTANCE = "study.db", "best.toml", "trials.csv", "importance.png"
SWEPT = "swept"  # attribute of the study: each setting's value and distribution
STARTED, FRAMES, REASON = "started", "frames", "reason"  # attributes of a trial
FAILURES = 5  # so many failed trials end a command if no trial has ever succeeded
SEEDS = 2**32  # NumPy, with which the sampler draws, takes no more
FEWEST = 8  # with fewer complete trials, importances would be chance
GOOD = 0.25  # the share of best trials: their parameters are compared with those of all


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
    if the study is of another sweep, or its file cannot be used.
    """
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    try:
        url = URL.create("sqlite", database=str(sweep.directory / STUDY)).render_as_string()
        storage = optuna.storages.RDBStorage(url)
        try:
            yield _load(storage, sweep)
        finally:
            storage.remove_session()
            storage.engine.dispose()
    except (SQLAlchemyError, StorageInternalError) as error:
        reason = str(error.__cause__ or error).splitlines()[0]
        raise UsageError(
            f"--dir {sweep.directory}: {STUDY} cannot be used ({reason}). Choose another --dir"
        ) from error


def _load(storage: optuna.storages.RDBStorage, sweep: Sweep) -> optuna.Study:
    study = optuna.create_study(
        storage=storage,
        study_name="sweep",
        direction="maximize",
        load_if_exists=True,
        # The median of complete trials, since learning may begin late and suddenly: successive
        # halving would end most trials on the plateau before.
        pruner=optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=3),
    )
    _identify(study, sweep)
    trials = study.get_trials(deepcopy=False)
    for trial in trials:
        if trial.state == TrialState.RUNNING:
            storage.set_trial_state_values(trial._trial_id, TrialState.WAITING)
    # With the same seed, a new sampler would repeat its first choices.
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
    return max(
        complete_trials(study), key=lambda t: (t.values, -t.user_attrs[FRAMES]), default=None
    )


class RunningTrial:
    """A trial that plays in a process, which sends milestones and its end over the link.

    frames: training steps so far. pruned: whether it was ended since others were better. end: its
    value, or why it has failed. state: how far it has come, in words.
    """

    def __init__(self, trial: optuna.Trial, process: Any, link: connection.Connection) -> None:
        self.trial, self.process, self.link = trial, process, link
        self.frames, self.pruned = 0, False
        self.end: Value | str | None = None
        self.state = f"trial {trial.number}"

    def receive(self) -> bool:
        """Take a message; return whether the trial goes on."""
        try:
            message: Milestone | Value | str = self.link.recv()
        except (EOFError, OSError):
            return False
        if isinstance(message, str):
            self.end = message
            return False
        self.frames = message.frames
        if isinstance(message, Value):
            self.end = message
            return False
        self.state = f"trial {self.trial.number} {message.frames:,} frames, {message.mean:.2f}"
        self.trial.report(message.mean, message.number)
        # A trial that has come to its end is not given up.
        self.pruned = message.number < MILESTONES and self.trial.should_prune()
        with suppress(OSError):  # it has died, which the next `receive` notices
            self.link.send(not self.pruned)
        return True

    def tell(self, study: optuna.Study) -> FrozenTrial:
        """Wait for the process; tell Optuna how the trial has ended."""
        self.process.join()
        self.kill()
        self.trial.set_user_attr(FRAMES, self.frames)
        if isinstance(self.end, Value) and math.isfinite(self.end.mean):
            return study.tell(self.trial, self.end.mean)
        if self.pruned and self.end is None:
            return study.tell(self.trial, state=TrialState.PRUNED)
        reason = self.end or f"its process died (exit code {self.process.exitcode})"
        if isinstance(reason, Value):
            reason = f"its mean return is {reason.mean}"
        self.trial.set_user_attr(REASON, reason)
        return study.tell(self.trial, state=TrialState.FAIL)

    def kill(self) -> None:
        """Kill the process and everything that its environment has started."""
        if self.process.pid:
            end_group(self.process.pid)
        self.process.kill()  # it may have no group yet
        self.process.join()


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
    restore = str(directory / LATEST) if resumed else ""
    base = dataclasses.replace(sweep.base, silent=True, run_dir=str(directory), restore=restore)
    reported = study.get_trials(deepcopy=False)[trial.number].last_step or 0
    ours, theirs = connection.Pipe()
    with theirs:
        process = multiprocessing.get_context("forkserver").Process(
            target=run_trial, args=(base, trial.params, theirs, reported)
        )
        with starting_helper():
            process.start()
    return RunningTrial(trial, process, ours)


def search(
    study: optuna.Study,
    sweep: Sweep,
    interrupts: Interrupts,
    report: Callable[[FrozenTrial], None],
    progress: Callable[[str], None],
) -> None:
    """Play trials until there are `total`; raise RunError if all have failed, and Interrupted.

    report: called with every trial that has ended. progress: called with the sweep's state in
    words.
    """
    done = done_trials(study)
    before = len(done)
    running: dict[Any, RunningTrial] = {}
    try:
        while running or len(done) < sweep.total:
            while len(running) < sweep.jobs and len(done) + len(running) < sweep.total:
                started = start_trial(study, sweep)
                running[started.link] = started
            state = ", ".join(each.state for each in running.values())
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
        for each in running.values():  # the next command continues them
            each.kill()


# ---- the report ----


def describe_trial(trial: FrozenTrial, best: FrozenTrial | None) -> str:
    """Return a finished trial's line. best: the best one so far."""
    outcome = trial.state.name.lower()
    if trial.value is not None:
        outcome += f" {trial.value:.2f}"
    if reason := trial.user_attrs.get(REASON):
        outcome += f" ({in_one_line(reason)})"
    params = ", ".join(
        f"{flag(name)[2:]} {f'{param:.3g}' if isinstance(param, float) else param}"
        for name, param in trial.params.items()
    )
    so_far = f" | best: trial {best.number} {best.value:.2f}" if best else ""
    frames = trial.user_attrs[FRAMES]
    played = f"{frames:,} frames, {_seconds(trial):.1f} s"
    return f"Trial {trial.number}: {outcome}, {played} | {params}{so_far}"


def write_tables(study: optuna.Study, sweep: Sweep) -> None:
    """Write trials.csv, and best.toml if a trial is complete; raise OSError."""
    done = done_trials(study)
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    names = [flag(name)[2:] for name in sweep.space]
    rows.writerow(["trial", "state", "value", FRAMES, "seconds", *names, REASON])
    for trial in done:
        # Optuna's value of a pruned trial is a mean of its training, and no evaluation.
        value = trial.value if trial.state == TrialState.COMPLETE else None
        params = [trial.params.get(name) for name in sweep.space]
        state, seconds = trial.state.name.lower(), round(_seconds(trial), 3)
        frames, reason = trial.user_attrs[FRAMES], trial.user_attrs.get(REASON)
        rows.writerow([trial.number, state, value, frames, seconds, *params, reason])
    replace(sweep.directory / TABLE, text.getvalue().encode())
    if best := best_trial(study):
        settings = _best_settings(sweep, best, len(done))
        replace(sweep.directory / BEST_SETTINGS, settings.encode())


def _seconds(trial: FrozenTrial) -> float:
    return trial.duration.total_seconds() if trial.duration else 0.0


def conclude(study: optuna.Study, sweep: Sweep, console: Console) -> str:
    """Say what was found, and draw importances; return the last line to say.

    Raise RunError if no trial is complete.
    """
    best = best_trial(study)
    if best is None:
        reasons = [trial.user_attrs.get(REASON) for trial in done_trials(study)]
        raise RunError(f"no trial is complete; the last has failed: {reasons[-1]}")
    console.say(f"\n{_draw_importance(study, sweep)}")
    run = sweep.trial_directory(best.number)
    for trial in complete_trials(study):
        if trial.params == base_params(sweep.space, sweep.base):
            value = f"{trial.value:.2f}"
            console.say(f"With the settings as they were given (trial {trial.number}): {value}")
    console.say(
        f"Best: trial {best.number}, {_found(sweep, best)}\n"
        f"{how_to_watch(sweep.base, run / LATEST, drawable=sweep.drawable)}"
    )
    train = command("main", "--config", sweep.directory / BEST_SETTINGS)
    return f"Train with its settings (add a larger budget to train longer):\n  {train}"


def _best_settings(sweep: Sweep, best: FrozenTrial, count: int) -> str:
    # A trial uses one process, since many trials run at once.
    workers = sweep.base.workers or "auto"
    config = dataclasses.replace(
        trial_settings(sweep.base, best.params), workers=workers, silent=False
    )
    usual, named = Config(), {"env_name", *sweep.space}
    values = {
        name: value
        for name, value in config.saved().items()
        if name in named or getattr(config, name) != getattr(usual, name)
    }
    title = (
        f"# {config.env_name}: the best of a sweep of {counted(count, 'trial')}.\n"
        f"# Trial {best.number}: {_found(sweep, best)}.\n"
    )
    return write_toml(values, title)


def _found(sweep: Sweep, best: FrozenTrial) -> str:
    episodes = counted(sweep.base.eval_episodes, "fresh episode")
    frames = best.user_attrs[FRAMES]
    return f"a mean return of {best.value:.2f} in {episodes} after {frames:,} training steps"


def _draw_importance(study: optuna.Study, sweep: Sweep) -> str:
    """Draw how much each setting matters; return where, or why not."""
    complete = complete_trials(study)
    if len(complete) < FEWEST or len({each.value for each in complete}) == 1:
        return (
            f"No {IMPORTANCE}: it needs {FEWEST} complete trials whose values differ (so far: "
            f"{len(complete)})."
        )
    import matplotlib
    from optuna.visualization.matplotlib import plot_param_importances

    matplotlib.use("agg")
    with warnings.catch_warnings(action="ignore"):  # that this is experimental
        evaluator = optuna.importance.PedAnovaImportanceEvaluator(target_quantile=GOOD)
        axes = plot_param_importances(study, evaluator=evaluator)
    figure = axes.get_figure(root=True)
    assert figure
    plot.save(figure, sweep.directory / IMPORTANCE)
    return f"Which settings matter: {sweep.directory / IMPORTANCE}"
