"""A run's reports together: the console's at once, those on disk in the background."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from es import checkpoint as checkpoints
from es.checkpoint import Checkpoint
from es.monitor.console import Console
from es.monitor.curve import CurvePainter
from es.monitor.files import ProgressFiles
from es.monitor.record import Record
from es.writer import BackgroundWriter


class Monitor:
    """Reports the updates of the run in `directory`, which has done `update` of them."""

    def __init__(self, directory: Path, console: Console, *, title: str, update: int) -> None:
        self.console = console
        self._directory = directory
        self._files = ProgressFiles(directory, update)
        self._painter = CurvePainter(directory, title)
        self._writer = BackgroundWriter()

    def commit(
        self,
        files: Mapping[str, Checkpoint],
        *,
        record: Record | None = None,
        evaluation: tuple[int, float, float] | None = None,
    ) -> None:
        """Writes figures, then checkpoints by file name, as one job.

        In this order, a checkpoint on disk never knows of an update that the figures lack.
        evaluation: the number of updates before it, mean and standard deviation.
        """

        def write() -> None:
            if evaluation is not None:
                self._files.write_evaluation(*evaluation)
            if record is not None:
                self._files.write(record)
                self._painter.request()
            for name, checkpoint in files.items():
                checkpoints.save(checkpoint, self._directory / name)

        self._writer.submit(write)

    def close(self, *, patience: Callable[[], float]) -> None:
        """Finishes everything written; waits for the last picture at most `patience()` seconds."""
        try:
            self._writer.close()
        finally:
            self._painter.close(patience)
            self._files.close()
