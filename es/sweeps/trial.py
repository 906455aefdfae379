"""A trial's process: it trains, reports at milestones, and sends its value at the end."""

import gc
import json
import os
import signal
import statistics
from collections import deque
from collections.abc import Mapping
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from es import cli
from es.config import Config
from es.errors import SIGNALS, Interrupts, execute, summary_of
from es.reports import NO_CURVE
from es.rollouts.processes import end_with_parent, leave
from es.settings import resolve

if TYPE_CHECKING:  # the fork server imports this file
    from es.reports.log import Record
    from es.train import Trainer

OUTPUT = "output.txt"
MILESTONES = 10  # of the budget, at which trials are compared
MEAN_OF = 5  # updates whose unperturbed returns are averaged: one alone is a single episode


class Milestone(NamedTuple):
    """Where a trial is. The sweep answers whether it goes on. mean: of its last returns."""

    number: int
    mean: float
    frames: int


class Value(NamedTuple):
    """The end of a trial: the mean return of its last policy."""

    mean: float
    frames: int


def trial_settings(base: Config, params: Mapping[str, Any]) -> Config:
    """Return a trial's settings: those of `base` under the parameters that Optuna has chosen.

    Raise UsageError if they do not go together.
    """
    values: dict[str, Any] = {
        name: tuple(json.loads(param)) if isinstance(getattr(base, name), tuple) else param
        for name, param in params.items()
    }
    return base.under(values)


def run_trial(base: Config, params: Mapping[str, Any], link: Connection, reported: int) -> None:
    """Run a trial's process, whose output goes to a file in the directory of its run.

    base: the settings of all trials, with this one's directory. params: the parameters that Optuna
    has chosen. link: takes milestones and the end (a Value, or why the trial has failed), and gives
    the answers to milestones. reported: the last milestone that the sweep knows.
    """
    gc.freeze()  # to look through what was imported would copy the pages that trials share
    os.setsid()  # the terminal's Ctrl-C is for the sweep, which then ends its trials
    for number in SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    os.environ[NO_CURVE] = "yes"  # trials are compared by their values
    with Path(base.run_dir or "", OUTPUT).open("ab") as output:
        for stream in (1, 2):
            os.dup2(output.fileno(), stream)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    leave(execute(partial(play, base, params, link, reported)))  # an environment may leave a thread


def play(
    base: Config, params: Mapping[str, Any], link: Connection, reported: int, interrupts: Interrupts
) -> int:
    """Play a trial in its process, and send its end; return the exit status.

    The value is the mean return of the last policy in the episodes of the run's own evaluation,
    which --test plays, too. A trial that is ended early has none. Raise the trial's error.
    """
    try:
        end_with_parent()
        return _train(trial_settings(base, params), link, reported, interrupts)
    except Exception as error:
        link.send(summary_of(error))
        raise


def _train(config: Config, link: Connection, reported: int, interrupts: Interrupts) -> int:
    checkpoint = None
    if config.restore:  # it goes on with the seed that it drew, in the phase that it was in
        given = {"restore": config.restore, "run_dir": config.run_dir, "trust": True}
        config, checkpoint = resolve(given, {})
    cli.prepare(config)
    from es.policy import make_policy
    from es.train import train

    returns: deque[float] = deque(maxlen=MEAN_OF)
    goes_on = True

    def after_update(record: "Record", trainer: "Trainer") -> bool:
        nonlocal reported, goes_on
        returns.append(record.unperturbed_return)
        number = min(MILESTONES, int(MILESTONES * _share(config, record)))
        if number > reported:
            reported = number
            link.send(Milestone(number, statistics.fmean(returns), record.frames))
            with interrupts.allowed():
                goes_on = link.recv()
        return goes_on

    outcome = train(config, checkpoint, interrupts, after_update=after_update)
    if outcome.status <= 128 and goes_on:
        saved = outcome.checkpoint
        assert saved.config is not None
        mean, _ = make_policy(saved.config, saved).evaluate()
        link.send(Value(mean, saved.counters.frames))
    return outcome.status


def _share(config: Config, record: "Record") -> float:
    """Return how much of the budget is used. Frames come first, since they can be compared."""
    if config.max_frames is not None:
        return record.frames / config.max_frames
    if config.max_minutes is not None:
        return record.wall_seconds / (60 * config.max_minutes)
    return record.update / config.max_gradient_updates
