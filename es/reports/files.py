"""progress.csv and TensorBoard events: one row, one step per update."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from es.reports.append_only import GrowingFile
from es.reports.record import COLUMNS, Record
from es.reports.tensorboard import EventFile
from es.runs.directory import PROGRESS, carry_csv_on

EVALUATION, POPULATION = "evaluation/", "returns/population"
METRICS = ("returns/unperturbed_return", f"{EVALUATION}return_mean")  # of runs, to compare them


class ProgressFiles:
    """The figures of a run, on disk.

    update, evaluated: of the checkpoint that the run carries on from. What its files hold beyond
    is played again, and dropped.
    """

    def __init__(self, directory: Path, update: int, evaluated: int) -> None:
        carry_csv_on(directory / PROGRESS, COLUMNS, update)
        self.csv = GrowingFile(directory / PROGRESS)
        self.events = EventFile(
            directory, update, lambda tag: evaluated if tag.startswith(EVALUATION) else update
        )

    def add(self, record: Record, returns: npt.NDArray[np.float64]) -> None:
        """Adds an update; flushing both files writes it. returns: (n,), of its perturbations."""
        self.csv.write((",".join(map(str, record)) + "\n").encode())
        self.events.add_scalars(figures_of(record), record.update)
        self.events.add_histogram(POPULATION, returns, record.update)

    def add_evaluation(self, update: int, mean: float, std: float) -> None:
        """Adds the evaluation of the parameters after `update` updates to the events."""
        self.events.add_scalars(evaluation_figures(mean, std), update)

    def close(self) -> None:
        """Closes both."""
        self.csv.close()
        self.events.close()


def figures_of(record: Record) -> dict[str, float]:
    """An update's figures by tag: all but the update itself."""
    named = zip(COLUMNS[1:], record[1:], strict=True)
    return {_tag(column): value for column, value in named}


def evaluation_figures(mean: float, std: float) -> dict[str, float]:
    """Those of an evaluation."""
    return {f"{EVALUATION}return_mean": mean, f"{EVALUATION}return_std": std}


def _tag(column: str) -> str:
    if "return" in column or column in ("unperturbed_rank", "elite_count", "non_finite"):
        return f"returns/{column}"
    if column in ("lr", "sigma", "grad_norm"):
        return f"optimisation/{column}"
    return f"progress/{column}"
