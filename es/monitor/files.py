"""progress.csv and TensorBoard events: one row, one step per update."""

from __future__ import annotations

from pathlib import Path

from torch.utils.tensorboard import SummaryWriter

from es.monitor.record import COLUMNS, Record
from es.rundir import PROGRESS, carry_csv_on


class ProgressFiles:
    """Appends to a run's files; what they hold beyond `update` was not saved and is dropped."""

    def __init__(self, directory: Path, update: int) -> None:
        path = directory / PROGRESS
        carry_csv_on(path, COLUMNS, update)
        self._csv = path.open("a")
        self._events = SummaryWriter(
            directory, purge_step=update + 1 if update else None, max_queue=1000
        )

    def write(self, record: Record) -> None:
        """Adds an update; a reader sees it at once."""
        self._csv.write(",".join(str(value) for value in record) + "\n")
        self._csv.flush()
        for column, value in zip(COLUMNS, record, strict=True):
            if column != "update":
                self._events.add_scalar(_tag(column), value, record.update)
        self._events.flush()

    def write_evaluation(self, update: int, mean: float, std: float) -> None:
        """Adds the evaluation of the parameters after `update` updates to the events."""
        self._events.add_scalar("evaluation/return_mean", mean, update)
        self._events.add_scalar("evaluation/return_std", std, update)
        self._events.flush()

    def close(self) -> None:
        """Closes both."""
        self._csv.close()
        self._events.close()


def _tag(column: str) -> str:
    if "return" in column or column in ("unperturbed_rank", "elite_count"):
        return f"returns/{column}"
    if column in ("lr", "sigma", "grad_norm"):
        return f"optimisation/{column}"
    return f"progress/{column}"
