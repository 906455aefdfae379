"""The sweep's end of a trial that is running: its process, and how far it has come."""

import contextlib
import json
import multiprocessing
import os
import shutil
import signal
import statistics
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import optuna

from es.checkpoint import LATEST
from es.config import Config
from es.errors import limit_error
from es.reports.tables import TableReader
from es.rollouts.processes import end_group, for_helpers
from es.run import PROGRESS, write_text
from es.settings import write_toml
from es.sweeps.trial import OUTCOME, TRIAL_SETTINGS, Play, run_trial

MILESTONES = 10  # of the budget, at which trials are compared
MEAN_OF = 5  # updates whose unperturbed returns are averaged: one alone is a single episode
CLOSE_SECONDS = 2.2


def budget(config: Config) -> tuple[str, float]:
    """Return the column of progress.csv that trials are compared by, and its last value.

    Frames come first, since they can be compared.
    """
    if config.max_frames is not None:
        return "frames", config.max_frames
    if config.max_minutes is not None:
        return "wall_seconds", 60 * config.max_minutes
    assert config.max_gradient_updates is not None
    return "update", config.max_gradient_updates


class RunningTrial:
    """A trial in a process of its own, whose files are in `directory`.

    A trial that was interrupted continues from its latest checkpoint, if it has one.

    reported: the last milestone that Optuna knows of an interrupted trial. frames: training steps
    so far. pruned: whether it was interrupted since others were better.
    """

    def __init__(
        self, trial: optuna.Trial, config: Config, directory: Path, play: Play, reported: int = 0
    ) -> None:
        self.trial, self.pruned, self.frames = trial, False, 0
        self._directory, self._rows = directory, TableReader(directory / PROGRESS)
        self._returns: deque[float] = deque(maxlen=MEAN_OF)
        (self._column, self._total), self._milestone = budget(config), reported
        if not (directory / LATEST).exists():  # it was interrupted before it had saved anything
            shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(exist_ok=True)
        write_text(directory / TRIAL_SETTINGS, write_toml(config.saved() | {"silent": True}))
        context = multiprocessing.get_context("forkserver")
        self.process = context.Process(target=run_trial, args=(play, directory))
        try:
            with for_helpers():
                self.process.start()
        except EOFError as error:  # as it cannot start another process
            raise limit_error("the fork server has ended") from error

    def follow(self) -> None:
        """Report the milestones that were reached; interrupt the trial if Optuna prunes it."""
        before = self._milestone
        with contextlib.suppress(OSError, ValueError):  # it is not there yet, or is damaged
            for row in self._rows.new_rows():
                self.frames = int(row["frames"])
                self._returns.append(row["unperturbed_return"])
                reached = min(MILESTONES, int(MILESTONES * row[self._column] / self._total))
                while self._milestone < reached:
                    self._milestone += 1
                    self.trial.report(self._mean, self._milestone)
        # Not row by row: a trial that has come to its end is not one to be given up. Only after a
        # report, since Optuna reads all trials from the disk to answer.
        reported = before < self._milestone < MILESTONES
        if reported and not self.pruned and self.trial.should_prune():
            self.pruned = True
            self.send(signal.SIGINT)  # it saves its run and ends

    @property
    def _mean(self) -> float:
        return statistics.fmean(self._returns)

    def describe(self) -> str:
        """Return how far it has come, in a few words."""
        so_far = f" {self.frames:,} frames, {self._mean:.2f}" if self._returns else ""
        return f"trial {self.trial.number}{so_far}"

    @property
    def complete(self) -> bool:
        """Whether its process has left an outcome."""
        return (self._directory / OUTCOME).exists()

    def outcome(self) -> dict[str, Any]:
        """Return what its process, which has ended, has left: {} if it was interrupted."""
        self.process.join()
        self.kill()
        with contextlib.suppress(OSError, ValueError):
            return json.loads((self._directory / OUTCOME).read_text())
        code = self.process.exitcode
        if code in (128 + signal.SIGINT, -signal.SIGINT):
            return {}
        return {"error": f"its process died (exit code {code})"}

    def send(self, number: int) -> None:
        """Send a signal to its process, unless that has ended."""
        with contextlib.suppress(ProcessLookupError):
            if self.process.is_alive() and self.process.pid:
                os.kill(self.process.pid, number)

    def kill(self) -> None:
        """End at once what its environment has started, and its process if it is not dead yet."""
        if self.process.pid:
            end_group(self.process.pid)
        self.process.kill()  # it may have no group yet


def end_trials(trials: Sequence[RunningTrial]) -> None:
    """End all trials within CLOSE_SECONDS, with their runs saved if that is possible."""
    for each in trials:
        each.send(signal.SIGINT)
    deadline = time.monotonic() + CLOSE_SECONDS
    for each in trials:
        each.process.join(max(0.0, deadline - time.monotonic()))
        each.kill()
        each.process.join()
