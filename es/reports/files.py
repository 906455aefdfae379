"""A run's figures, in its tables, TensorBoard and Weights & Biases."""

import numpy as np

from es.algorithm.noise import DoubleArray
from es.checkpoint import Counters
from es.reports.append_only import AppendOnlyFile, Place
from es.reports.record import (
    COLUMNS,
    EVALUATION_COLUMNS,
    Distributions,
    EvaluationRecord,
    Figures,
    Record,
)
from es.reports.tables import carry_on, header
from es.reports.tensorboard import EventFile
from es.reports.wandb import WandbReporter
from es.run import EVALUATIONS, PROGRESS

METRICS = ("returns/unperturbed_return", "evaluation/return_mean")  # to compare runs by
SUMMARY = ("mean", "std", "min", "max")  # of an evaluation's returns
LARGEST = 1e150  # a histogram of larger returns could overflow


class ProgressFiles:
    """Add figures to the files in a run's directory, and to Weights & Biases if `wandb` is given.

    counters: of the checkpoint that the run is resumed from. Later rows and events are dropped,
    since these updates are played again.
    """

    def __init__(
        self, place: Place, counters: Counters, wandb: WandbReporter | None = None
    ) -> None:
        update, directory = counters.update, place.path
        carry_on(directory / PROGRESS, COLUMNS, update)
        self._evaluated = -1
        if (directory / EVALUATIONS).exists():
            self._evaluated = carry_on(directory / EVALUATIONS, EVALUATION_COLUMNS, update)
        self.csv = AppendOnlyFile(place, PROGRESS, header(COLUMNS))
        self.evaluations = AppendOnlyFile(place, EVALUATIONS, header(EVALUATION_COLUMNS))
        self.events = EventFile(place, purge_step=counters.frames + 1)
        self._wandb = wandb

    def add(self, record: Record, returns: DoubleArray) -> None:
        """Add an update, which is on the disk once all files are flushed. returns: (n,)."""
        self.csv.write(_row(record))
        drawable = returns[np.abs(returns) < LARGEST]
        self._add(
            record.frames,
            {_tag(column): value for column, value in record._asdict().items()},
            {"returns/population": drawable} if drawable.size else {},
        )

    def add_evaluation(self, record: EvaluationRecord) -> None:
        """Add an evaluation, unless the files have it from before the run was resumed."""
        if record.update > self._evaluated:
            self._evaluated = record.update
            self.evaluations.write(_row(record))
            figures = {f"evaluation/return_{name}": getattr(record, name) for name in SUMMARY}
            self._add(record.frames, figures, {})

    def close(self) -> None:
        """Close all files."""
        for file in (self.csv, self.evaluations, self.events):
            file.close()

    def _add(self, frames: int, figures: Figures, distributions: Distributions) -> None:
        self.events.add(frames, figures, distributions)
        if self._wandb:
            self._wandb.add(frames, figures, distributions)


def _row(record: Record | EvaluationRecord) -> bytes:
    return (",".join(map(str, record)) + "\n").encode()


def _tag(column: str) -> str:
    if "return" in column or column in ("unperturbed_rank", "elite_count", "non_finite"):
        return f"returns/{column}"
    if column in ("lr", "sigma", "grad_norm"):
        return f"optimisation/{column}"
    return f"progress/{column}"
