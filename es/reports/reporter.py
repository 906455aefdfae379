"""A run's reports together: the console's at once, those on disk in the background."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial

import numpy as np
import numpy.typing as npt

from es.reports.files import METRICS, ProgressFiles
from es.reports.films import VideoRecorder
from es.reports.learning_curve import CurvePainter
from es.reports.record import Record
from es.reports.tensorboard import EVENTS, Settings
from es.reports.terminal import Terminal
from es.reports.wandb import WandbReporter
from es.runs import checkpoint as checkpoints
from es.runs.checkpoint import Checkpoint, Counters
from es.runs.directory import BEST, CURVE, LATEST, PROGRESS, VIDEOS, RunDir
from es.runs.writer import BackgroundWriter

PICTURE_SECONDS, HURRIED_SECONDS = 20.0, 2.2  # to wait for the last one
LEAST_SECONDS = 0.5  # for the last reports, however long the picture took


class Monitor:
    """Reports the updates of the run in `directory`, which has come as far as `counters` say.

    title, target: of the learning curve, the latter being the --target-return, if any. settings: by
    which the run can be compared with others. filmed: the environment that videos are made of, if
    any are wanted. wandb: reports there, too.
    """

    def __init__(
        self,
        directory: RunDir,
        console: Terminal,
        *,
        title: str,
        counters: Counters,
        target: float | None = None,
        settings: Settings,
        filmed: str | None = None,
        wandb: WandbReporter | None = None,
    ) -> None:
        self.console = console
        self._directory, path = directory, directory.path
        self._files = ProgressFiles(path, counters.update, wandb)
        self._files.events.add_hyperparameters(settings, METRICS)
        self._painter = CurvePainter(path, title, target)
        self._recorder = VideoRecorder(directory, filmed, console) if filmed else None
        self._wandb = wandb
        self._update = self._shown = counters.update
        self._writer = BackgroundWriter(
            lambda trouble: console.warn(f"{path}: {trouble}"),
            precious=(PROGRESS, EVENTS, BEST, LATEST),
        )

    def commit(
        self,
        files: Mapping[str, Checkpoint],
        *,
        played: tuple[Record, npt.NDArray[np.float64]] | None = None,
        evaluation: tuple[int, float, float] | None = None,
        film: Checkpoint | None = None,
    ) -> None:
        """Writes figures, then checkpoints by file name, of which latest.safetensors comes last.

        In this order, a run that is carried on lacks nothing of before its latest checkpoint, but
        for what the disk has refused.
        played: an update, and its perturbations' returns. evaluation: the number of updates before
        it, mean and standard deviation. film: of whose policy an episode is to be recorded.
        """

        def add() -> None:
            if evaluation is not None:
                self._files.add_evaluation(*evaluation)
            if played is not None:
                self._files.add(*played)
                self._update = played[0].update

        def draw() -> None:
            if played is not None:
                self._painter.request()
                # Each time that the updates have doubled: all pictures would fill the disk.
                if self._update >= 2 * self._shown:
                    self._show_curve()

        self._writer.submit(
            {
                "figures": add,  # in memory: this cannot fail
                PROGRESS: self._files.csv.flush,
                EVENTS: self._files.events.flush,
                CURVE: draw,
            }
            | ({VIDEOS: partial(self._recorder.record, film)} if self._recorder and film else {})
            | {
                name: partial(self._save, files[name], name)
                for name in sorted(files, key=lambda name: name == LATEST)
            }
        )

    def close(self, *, hurried: Callable[[], bool]) -> dict[str, str]:
        """Finishes everything written; waits for the last picture, and for all videos.

        hurried: whether the user does not want to wait. The result is what could not be written,
        and why.
        """
        start = time.monotonic()

        def patience() -> float:
            return HURRIED_SECONDS if hurried() else PICTURE_SECONDS

        try:
            return self._writer.close()
        finally:
            self._painter.close(patience)
            self._show_curve()
            self._files.close()
            if self._wandb is not None:
                began = time.monotonic()
                self._wandb.close(
                    self._directory.path / CURVE,
                    self._update,
                    lambda: max(LEAST_SECONDS, patience() + start - began),
                )
            if self._recorder:
                self._recorder.close(hurried)

    def _show_curve(self) -> None:
        picture = self._painter.redrawn()
        if picture is not None:
            self._files.events.add_image("learning_curve", picture, self._update)
            self._shown = self._update
            with suppress(OSError):  # a missing picture is no reason to end a run
                self._files.events.flush()

    def _save(self, checkpoint: Checkpoint, name: str) -> None:
        self._directory.check()  # another run may have taken its place
        checkpoints.save(checkpoint, self._directory.path / name)
