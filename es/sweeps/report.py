"""What a sweep shows and leaves: a line per trial, trials.csv, best.toml, importance.png."""

from __future__ import annotations

import csv
import io
import warnings
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from es.config import Config, flag
from es.config.sources import write_toml
from es.errors import RunError, in_one_line
from es.reports import plotting
from es.program import command
from es.reports.terminal import Terminal
from es.runs.directory import LATEST, move_aside, write_text
from es.rollouts.interface import counted
from es.rendering.window import watching
from es.sweeps.space import settings, start
from es.sweeps.study import FRAMES, INTERRUPTED, REASON, Sweep, best_of, trial_name

BEST, TABLE, IMPORTANCE = "best.toml", "trials.csv", "importance.png"
FEWEST = 8  # complete trials, below which importances are chance
GOOD = 0.25  # of the trials, whose parameters are compared with all


def move_older(study: optuna.Study, sweep: Sweep) -> list[Path]:
    """Moves aside what a study without a trial finds in its place: where to; raises OSError."""
    if any(each.state != TrialState.WAITING for each in study.get_trials(deepcopy=False)):
        return []
    paths = [sweep.directory / name for name in (BEST, TABLE, IMPORTANCE)]
    return [move_aside(path) for path in paths if path.exists()]


def line(trial: FrozenTrial, best: FrozenTrial | None) -> str:
    """A finished trial's. best: the best one so far."""
    value = "" if trial.value is None else f" {trial.value:.2f}"
    outcome = f"{trial.state.name.lower()}{value}"
    if reason := trial.user_attrs.get(REASON):
        outcome += f" ({in_one_line(reason)})"
    shown = ", ".join(f"{name} {value}" for name, value in _shown(trial.params).items())
    so_far = f" | best: trial {best.number} {best.value:.2f}" if best else ""
    return (
        f"Trial {trial.number}: {outcome}, {trial.user_attrs[FRAMES]:,} frames, "
        f"{_seconds(trial):.1f} s | {shown}{so_far}"
    )


def write_tables(study: optuna.Study, sweep: Sweep) -> None:
    """Writes trials.csv, and best.toml if a trial is complete; raises OSError."""
    trials = [each for each in study.get_trials(deepcopy=False) if each.state.is_finished()]
    columns = {name: flag(name)[2:] for name in sweep.space}
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["trial", "state", "value", FRAMES, "seconds", *columns.values(), REASON])
    for each in trials:
        state = "interrupted" if INTERRUPTED in each.user_attrs else each.state.name.lower()
        writer.writerow(
            [
                each.number,
                state,
                each.value,
                each.user_attrs.get(FRAMES),
                f"{_seconds(each):.3f}",
                *(each.params.get(name) for name in columns),
                each.user_attrs.get(REASON),
            ]
        )
    write_text(sweep.directory / TABLE, text.getvalue())
    if best := best_of(study):
        write_text(sweep.directory / BEST, _best_toml(sweep, best, len(trials)))


def conclude(study: optuna.Study, sweep: Sweep, console: Terminal) -> str:
    """Says what was found, and draws importances; the result is the last line.

    Raises RunError where no trial is complete.
    """
    best = best_of(study)
    if best is None:
        failed = [each.user_attrs.get(REASON) for each in study.get_trials(deepcopy=False)]
        reasons = [reason for reason in failed if reason]
        raise RunError(f"no trial is complete; the last has failed: {reasons[-1]}")
    console.say("")
    console.say(_draw_importance(study, sweep))
    run = sweep.directory / trial_name(best.number)
    console.say(
        f"Best: trial {best.number}, {_found(sweep, best)}\n"
        f"{_gain(study, sweep, best)}"
        f"Watch it: {command('main', *watching(), '--restore', run / LATEST)}"
    )
    train = command("main", "--config", sweep.directory / BEST)
    return f"Train with its settings (for longer: give another budget, too): {train}"


def _gain(study: optuna.Study, sweep: Sweep, best: FrozenTrial) -> str:
    """What the search has gained, if the settings as they were given have been tried."""
    complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    given = [trial for trial in complete if trial.params == start(sweep.space, sweep.base)]
    if not given:
        return ""
    if best.value == given[0].value:
        return (
            "No trial is better than that of the settings as they were given: try more --trials, "
            "another --space or a larger budget\n"
        )
    return f"With the settings as they were given (trial {given[0].number}): {given[0].value:.2f}\n"


def _best_toml(sweep: Sweep, best: FrozenTrial, count: int) -> str:
    config, usual = settings(sweep.space, sweep.base, best.params), Config()
    named = {"env_name", *sweep.space}
    values = {
        name: value
        for name, value in config.saved().items()
        if name in named or getattr(config, name) != getattr(usual, name)
    }
    values.pop("silent", None)
    if not config.workers:  # a trial's one process is one of many
        values["workers"] = "auto"
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
    """Draws how much each setting matters; the result says where, or why not."""
    complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    if len(complete) < FEWEST or len({each.value for each in complete}) == 1:
        return (
            f"No {IMPORTANCE}: to tell which settings matter takes {FEWEST} complete trials, not "
            f"all of the same value (so far: {len(complete)})."
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that PED-ANOVA is experimental
        evaluator = optuna.importance.PedAnovaImportanceEvaluator(target_quantile=GOOD)
        found = optuna.importance.get_param_importances(study, evaluator=evaluator)
    names = [flag(name)[2:] for name in found][::-1]  # the most important one on top
    title = f"{sweep.base.env_name}: what the best of {len(complete)} trials have in common"
    figure, (axes,) = plotting.new_figure(
        [title], "importance (PED-ANOVA)", "", height=1.2 + 0.35 * len(names)
    )
    axes.grid(visible=False, axis="y")
    bars = axes.barh(names, [*found.values()][::-1], color=plotting.BLUE)
    axes.bar_label(bars, fmt="%.2f", padding=3)
    axes.margins(x=0.12)
    plotting.save(figure, sweep.directory / IMPORTANCE)
    return f"Which settings matter: {sweep.directory / IMPORTANCE}"


def _shown(params: dict[str, Any]) -> dict[str, str]:
    return {
        flag(name)[2:]: f"{value:.3g}" if isinstance(value, float) else str(value)
        for name, value in params.items()
    }


def _seconds(trial: FrozenTrial) -> float:
    return trial.duration.total_seconds() if trial.duration else 0.0
