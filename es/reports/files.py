"""A run's figures, update by update: progress.csv, TensorBoard and Weights & Biases."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from es.reports.append_only import AppendOnlyFile
from es.reports.progress_csv import carry_progress_on
from es.reports.record import COLUMNS, Record
from es.reports.tensorboard import EventFile
from es.reports.wandb import WandbReporter
from es.runs.directory import PROGRESS

METRICS = ("returns/unperturbed_return", "evaluation/return_mean")  # to compare runs by
LARGEST = 1e150  # a histogram of larger returns could overflow


class ProgressFiles:
    """Add figures to the files in a run's directory, and to Weights & Biases if wanted.

    update: of the checkpoint that the run is resumed from; later rows and events are dropped, since
    these updates are played again.
    """

    def __init__(self, directory: Path, update: int, wandb: WandbReporter | None = None) -> None:
        carry_progress_on(directory / PROGRESS, update)
        self.csv = AppendOnlyFile(directory / PROGRESS)
        self.events = EventFile(directory, purge_step=update + 1)
        self._trackers = (self.events, wandb) if wandb else (self.events,)

    def add(self, record: Record, returns: npt.NDArray[np.float64]) -> None:
        """Add an update; it is on disk when both files are flushed. returns: (n,) float64."""
        self.csv.write((",".join(map(str, record)) + "\n").encode())
        named = zip(COLUMNS[1:], record[1:], strict=True)
        figures = {_tag(column): value for column, value in named}
        drawable = returns[np.abs(returns) < LARGEST]
        distributions = {"returns/population": drawable} if drawable.size else {}
        for tracker in self._trackers:
            tracker.add(record.update, figures, distributions)

    def add_evaluation(self, update: int, mean: float, std: float) -> None:
        """Add the evaluation of the parameters after `update` updates."""
        figures = {"evaluation/return_mean": mean, "evaluation/return_std": std}
        for tracker in self._trackers:
            tracker.add(update, figures, {})

    def close(self) -> None:
        """Close both files."""
        self.csv.close()
        self.events.close()


def _tag(column: str) -> str:
    if "return" in column or column in ("unperturbed_rank", "elite_count", "non_finite"):
        return f"returns/{column}"
    if column in ("lr", "sigma", "grad_norm"):
        return f"optimisation/{column}"
    return f"progress/{column}"
