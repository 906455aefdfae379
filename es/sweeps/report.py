"""What a sweep shows and leaves: a line per trial, trials.csv, best.toml, importance.png."""

import csv
import io
import warnings
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from es.checkpoint import LATEST
from es.config import Config, flag
from es.errors import RunError, command, in_one_line
from es.reports import plotting
from es.reports.terminal import Terminal
from es.rollouts.interface import counted
from es.run import write_text
from es.settings import write_toml
from es.sweeps.space import base_params, trial_settings
from es.sweeps.study import (
    FRAMES,
    REASON,
    Sweep,
    best_trial,
    complete_trials,
    done_trials,
)
from es.train import how_to_watch

BEST_SETTINGS, TRIALS, IMPORTANCE = "best.toml", "trials.csv", "importance.png"
FEWEST = 8  # complete trials, below which importances are chance
GOOD = 0.25  # of the trials, whose parameters are compared with all


def describe_trial(trial: FrozenTrial, best: FrozenTrial | None) -> str:
    """Return a finished trial's line. best: the best one so far."""
    at = " at" if trial.state == TrialState.PRUNED else ""  # a mean of its training, no evaluation
    value = "" if trial.value is None else f"{at} {trial.value:.2f}"
    outcome = f"{trial.state.name.lower()}{value}"
    if reason := trial.user_attrs.get(REASON):
        outcome += f" ({in_one_line(reason)})"
    params = ", ".join(f"{flag(name)[2:]} {_short(param)}" for name, param in trial.params.items())
    so_far = f" | best: trial {best.number} {best.value:.2f}" if best else ""
    frames = trial.user_attrs[FRAMES]
    played = f"{frames:,} frames, {_seconds(trial):.1f} s"
    return f"Trial {trial.number}: {outcome}, {played} | {params}{so_far}"


def _short(param: Any) -> str:
    return f"{param:.3g}" if isinstance(param, float) else str(param)


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
    write_text(sweep.directory / TRIALS, text.getvalue())
    if best := best_trial(study):
        settings = _best_settings(sweep, best, len(done))
        write_text(sweep.directory / BEST_SETTINGS, settings)


def _seconds(trial: FrozenTrial) -> float:
    return trial.duration.total_seconds() if trial.duration else 0.0


def conclude(study: optuna.Study, sweep: Sweep, console: Terminal) -> str:
    """Say what was found, and draw importances; return the last line to say.

    Raises RunError if no trial is complete.
    """
    best = best_trial(study)
    if best is None:
        reasons = [trial.user_attrs.get(REASON) for trial in done_trials(study)]
        raise RunError(f"no trial is complete; the last has failed: {reasons[-1]}")
    console.say("")
    console.say(_draw_importance(study, sweep))
    run = sweep.trial_directory(best.number)
    console.say(
        f"Best: trial {best.number}, {_found(sweep, best)}\n"
        f"{_gain(study, sweep, best)}"
        f"{how_to_watch(sweep.base, run / LATEST, drawable=sweep.drawable)}"
    )
    train = command("main", "--config", sweep.directory / BEST_SETTINGS)
    return f"Train with its settings (for longer: give another budget, too):\n  {train}"


def _gain(study: optuna.Study, sweep: Sweep, best: FrozenTrial) -> str:
    """Return what the search has gained, if the settings as they were given have been tried."""
    params = base_params(sweep.space, sweep.base)
    given = [trial for trial in complete_trials(study) if trial.params == params]
    if not given:
        return ""
    if best.value == given[0].value:
        return (
            "No trial is better than that of the settings as they were given: try more --trials, "
            "another --space or a larger budget\n"
        )
    return f"With the settings as they were given (trial {given[0].number}): {given[0].value:.2f}\n"


def _best_settings(sweep: Sweep, best: FrozenTrial, count: int) -> str:
    config = trial_settings(sweep.base, best.params)
    usual = Config()
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
    """Draw how much each setting matters; return where, or why not."""
    complete = complete_trials(study)
    if len(complete) < FEWEST or len({each.value for each in complete}) == 1:
        return (
            f"No {IMPORTANCE}: to tell which settings matter takes {FEWEST} complete trials, not "
            f"all of the same value (so far: {len(complete)})."
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that PED-ANOVA is experimental
        evaluator = optuna.importance.PedAnovaImportanceEvaluator(target_quantile=GOOD)
        found = optuna.importance.get_param_importances(study, evaluator=evaluator)
    title = f"{sweep.base.env_name}: what the best of {len(complete)} trials have in common"
    figure, (axes,) = plotting.new_figure(
        [title], "importance (PED-ANOVA)", "", height=1.2 + 0.35 * len(found)
    )
    bars = axes.barh([flag(name)[2:] for name in found], [*found.values()], color=plotting.BLUE)
    axes.bar_label(bars, fmt="%.2f", padding=3)
    axes.invert_yaxis()  # the most important one on top
    axes.margins(x=0.12)
    plotting.save(figure, sweep.directory / IMPORTANCE)
    return f"Which settings matter: {sweep.directory / IMPORTANCE}"
