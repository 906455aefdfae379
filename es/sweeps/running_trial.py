"""The sweep's end of a trial that is running: its process, and how far it has come."""

from __future__ import annotations

import contextlib
import csv
import json
import multiprocessing
import os
import signal
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import optuna

from es.config import Config
from es.config.sources import write_toml
from es.runs.directory import PROGRESS, open_new, write_text
from es.rollouts.processes import for_helpers
from es.sweeps.trial import OUTCOME, SETTINGS, play

MILESTONES = 10  # of the budget, at which trials are compared
MEAN_OF = 5  # updates whose unperturbed returns are averaged: one alone is a single episode
CLOSE_SECONDS = 2.2


class Budget(NamedTuple):
    """What a trial may use of what a column of progress.csv counts."""

    column: str
    total: float

    def milestone(self, used: float) -> int:
        """The last milestone that was reached."""
        return min(MILESTONES, int(MILESTONES * used / self.total))


def budget(config: Config) -> Budget:
    """The ending condition that trials are compared by: frames come first, being comparable."""
    if config.max_frames is not None:
        return Budget("frames", config.max_frames)
    if config.max_minutes is not None:
        return Budget("wall_seconds", 60 * config.max_minutes)
    return Budget("update", config.max_gradient_updates)


class Running:
    """A trial in a process of its own, whose files are in `directory`.

    pruned: whether it was interrupted since others were better.
    """

    def __init__(self, trial: optuna.Trial, config: Config, directory: Path) -> None:
        self.trial, self.pruned, self.frames = trial, False, 0
        self._directory, self._budget = directory, budget(config)
        self._position, self._columns, self._milestone = 0, list[str](), 0
        self._returns: deque[float] = deque(maxlen=MEAN_OF)
        open_new(directory).close()  # what a study that is gone has left is moved aside
        write_text(directory / SETTINGS, write_toml(config.saved() | {"silent": True}))
        context = multiprocessing.get_context("forkserver")
        self.process = context.Process(target=play, args=(directory,))
        with for_helpers():
            self.process.start()

    def follow(self) -> None:
        """Reports the milestones that were reached; interrupts the trial where Optuna prunes it."""
        for row in self._new_rows():
            self.frames = int(row["frames"])
            self._returns.append(float(row["unperturbed_return"]))
            reached = self._budget.milestone(float(row[self._budget.column]))
            for milestone in range(self._milestone + 1, reached + 1):
                self.trial.report(self.mean, milestone)
            self._milestone = max(self._milestone, reached)
        # Not row by row: a trial that has come to its end is not one to be given up.
        if not self.pruned and 0 < self._milestone < MILESTONES and self.trial.should_prune():
            self.pruned = True
            self.interrupt()

    @property
    def mean(self) -> float:
        """The mean unperturbed return of the last few updates."""
        return sum(self._returns) / len(self._returns)

    def describe(self) -> str:
        """How far it has come, in a few words."""
        so_far = f" {self.frames:,} frames, {self.mean:.2f}" if self._returns else ""
        return f"trial {self.trial.number}{so_far}"

    def interrupt(self) -> None:
        """Has it save its run and end."""
        self.send(signal.SIGINT)

    @property
    def complete(self) -> bool:
        """Whether its process has left an outcome."""
        return (self._directory / OUTCOME).exists()

    def outcome(self) -> dict[str, Any]:
        """What its process, which has ended, has left: {} if it was interrupted."""
        self.process.join()
        with contextlib.suppress(OSError, ValueError):
            return json.loads((self._directory / OUTCOME).read_text())
        code = self.process.exitcode
        if code in (128 + signal.SIGINT, -signal.SIGINT):
            return {}
        return {"error": f"its process died (exit code {code})"}

    def send(self, number: int) -> None:
        """Sends a signal to its process, unless that has ended."""
        with contextlib.suppress(ProcessLookupError):
            if self.process.is_alive() and self.process.pid:
                os.kill(self.process.pid, number)

    def _new_rows(self) -> Iterator[dict[str, str]]:
        """The whole lines that have come to progress.csv."""
        with contextlib.suppress(FileNotFoundError), (self._directory / PROGRESS).open() as file:
            file.seek(self._position)
            text = file.read()
            lines = text[: text.rfind("\n") + 1].splitlines()
            self._position += sum(len(line) + 1 for line in lines)
            for row in csv.reader(lines):
                if self._columns:
                    yield dict(zip(self._columns, row, strict=True))
                else:
                    self._columns = row


def end(trials: Sequence[Running]) -> None:
    """Ends them all within CLOSE_SECONDS, with their runs saved if that is possible."""
    for each in trials:
        each.interrupt()
    deadline = time.monotonic() + CLOSE_SECONDS
    for each in trials:
        each.process.join(max(0.0, deadline - time.monotonic()))
        each.send(signal.SIGKILL)
        each.process.join()
