"""A run's reports: on the console at once, on the disk in the background."""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial

from es import checkpoint as checkpoints
from es.algorithm.noise import DoubleArray
from es.checkpoint import BEST, LATEST, Checkpoint, Counters
from es.errors import command
from es.reports.append_only import Place
from es.reports.files import METRICS, ProgressFiles
from es.reports.films import VideoRecorder
from es.reports.learning_curve import CurvePainter
from es.reports.record import EvaluationRecord, Record
from es.reports.tensorboard import EVENTS, Settings
from es.reports.terminal import Terminal
from es.reports.wandb import WandbReporter
from es.reports.writer import BackgroundWriter
from es.run import CURVE, EVALUATIONS, PROGRESS, VIDEOS, RunDir

PICTURE_SECONDS = 20.0  # to wait for the last picture while its process does nothing
HURRIED_SECONDS = 2.2  # to wait for it after Ctrl-C
LEAST_SECONDS = 0.5  # for Weights & Biases, however long the picture took


class Reporter:
    """Report the updates of the run in `directory` after those that `counters` include.

    title, target: of the learning curve; the target is the --target-return, if any. settings: the
    run is compared with others by them. filmed: `Config.flags_to_restore`, if videos are recorded.
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
        filmed: list[str] | None = None,
        wandb: WandbReporter | None = None,
    ) -> None:
        self.console = console
        self._directory, path = directory, directory.path

        def warn(trouble: str) -> None:
            console.warn(f"{path}: {trouble}")

        self._files = ProgressFiles(Place(path, directory.check, warn), counters, wandb)
        self._files.events.add_hyperparameters(settings, METRICS)
        self._painter = CurvePainter(path, title, target)
        self._recorder = None if filmed is None else VideoRecorder(directory, filmed, console)
        self._wandb = wandb
        self._frames = self._shown = counters.frames
        self._writer = BackgroundWriter(
            warn, precious=(PROGRESS, EVALUATIONS, EVENTS, BEST, LATEST)
        )

    def commit(
        self,
        files: Mapping[str, Checkpoint],
        *,
        played: tuple[Record, DoubleArray] | None = None,
        evaluation: EvaluationRecord | None = None,
        film: Checkpoint | None = None,
    ) -> None:
        """Write figures, then checkpoints by file name, latest.safetensors last.

        In this order, a run that is carried on lacks nothing from before its latest checkpoint,
        except what the disk has refused.
        played: an update, and its perturbations' returns. evaluation: one that was played before
        it. film: the checkpoint to record an episode of.
        """

        def add() -> None:
            if evaluation is not None:
                self._files.add_evaluation(evaluation)
            if played is not None:
                self._files.add(*played)
                self._frames = played[0].frames

        def draw() -> None:
            if played is not None:
                self._painter.request()
                # Each time that the frames have doubled: all pictures would fill the disk.
                if self._frames >= 2 * self._shown:
                    self._show_curve()

        jobs: dict[str, Callable[[], object]] = {
            "figures": add,  # in memory: this cannot fail
            PROGRESS: self._files.csv.flush,
            EVALUATIONS: self._files.evaluations.flush,
            EVENTS: self._files.events.flush,
            CURVE: draw,
        }
        if self._recorder and film:
            jobs[VIDEOS] = partial(self._recorder.record, film)
        for name in sorted(files, key=lambda name: name == LATEST):
            jobs[name] = partial(self._save, files[name], name)
        self._writer.submit(jobs)

    def close(self, *, hurried: Callable[[], bool]) -> dict[str, str]:
        """Finish writing, wait for the last picture and for all videos.

        hurried: returns whether the user does not want to wait. Return the files that could not be
        written, with the reasons.
        """
        start = time.monotonic()

        def enough(idle: float) -> bool:
            if hurried():
                return time.monotonic() - start >= HURRIED_SECONDS
            return idle >= PICTURE_SECONDS

        try:
            return self._writer.close()
        finally:
            if failure := self._painter.close(enough):
                path = self._directory.path
                tell = self.console.say if hurried() else self.console.warn
                tell(
                    f"{path / CURVE}: does not show the last updates ({failure}); "
                    f"draw the run: {command('compare', path)}"
                )
            self._show_curve()
            self._files.close()
            if self._wandb:
                spent = time.monotonic() - start

                def patience() -> float:
                    left = max(LEAST_SECONDS, HURRIED_SECONDS - spent)
                    return left if hurried() else PICTURE_SECONDS

                self._wandb.close(self._directory.path / CURVE, self._frames, patience)
            if self._recorder:
                self._recorder.close(hurried)

    def _show_curve(self) -> None:
        picture = self._painter.redrawn()
        if picture is not None:
            self._files.events.add_image("learning_curve", picture, self._frames)
            self._shown = self._frames
            with suppress(OSError):  # a missing picture is no reason to end a run
                self._files.events.flush()

    def _save(self, checkpoint: Checkpoint, name: str) -> None:
        self._directory.check()  # another run may have taken its place
        checkpoints.save(checkpoint, self._directory.path / name)
