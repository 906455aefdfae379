"""A run's figures by update, in progress.csv, TensorBoard and Weights & Biases."""

from pathlib import Path

import numpy as np

from es.noise import DoubleArray
from es.reports.append_only import AppendOnlyFile
from es.reports.progress_csv import carry_progress_on
from es.reports.record import COLUMNS, Distributions, Figures, Record
from es.reports.tensorboard import EventFile
from es.reports.wandb import WandbReporter
from es.runs.directory import PROGRESS

METRICS = ("returns/unperturbed_return", "evaluation/return_mean")  # to compare runs by
LARGEST = 1e150  # a histogram of larger returns could overflow


class ProgressFiles:
    """Add figures to the files in a run's directory, and to Weights & Biases if `wandb` is given.

    update: of the checkpoint that the run is resumed from. Later rows and events are dropped, since
    these updates are played again.
    """

    def __init__(self, directory: Path, update: int, wandb: WandbReporter | None = None) -> None:
        carry_progress_on(directory / PROGRESS, update)
        self.csv = AppendOnlyFile(directory / PROGRESS)
        self.events = EventFile(directory, purge_step=update + 1)
        self._wandb = wandb

    def add(self, record: Record, returns: DoubleArray) -> None:
        """Add an update, which is on the disk once both files are flushed. returns: (n,)."""
        self.csv.write((",".join(map(str, record)) + "\n").encode())
        named = zip(COLUMNS[1:], record[1:], strict=True)
        drawable = returns[np.abs(returns) < LARGEST]
        self._add(
            record.update,
            {_tag(column): value for column, value in named},
            {"returns/population": drawable} if drawable.size else {},
        )

    def add_evaluation(self, update: int, mean: float, std: float) -> None:
        """Add the evaluation of the parameters after `update` updates."""
        self._add(update, {"evaluation/return_mean": mean, "evaluation/return_std": std}, {})

    def close(self) -> None:
        """Close both files."""
        self.csv.close()
        self.events.close()

    def _add(self, update: int, figures: Figures, distributions: Distributions) -> None:
        self.events.add(update, figures, distributions)
        if self._wandb:
            self._wandb.add(update, figures, distributions)


def _tag(column: str) -> str:
    if "return" in column or column in ("unperturbed_rank", "elite_count", "non_finite"):
        return f"returns/{column}"
    if column in ("lr", "sigma", "grad_norm"):
        return f"optimisation/{column}"
    return f"progress/{column}"
