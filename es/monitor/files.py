"""progress.csv and TensorBoard events: one row, one step per update."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tensorboard.compat.proto.summary_pb2 import Summary
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
        named = zip(COLUMNS[1:], record[1:], strict=True)  # all but the update itself
        self._write_events({_tag(column): value for column, value in named}, record.update)

    def write_evaluation(self, update: int, mean: float, std: float) -> None:
        """Adds the evaluation of the parameters after `update` updates to the events."""
        figures = {"evaluation/return_mean": mean, "evaluation/return_std": std}
        self._write_events(figures, update)

    def _write_events(self, figures: Mapping[str, float], update: int) -> None:
        # As one event: `add_scalar` for each would take four times as long.
        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in figures.items()]
        assert self._events.file_writer
        self._events.file_writer.add_summary(Summary(value=values), update)
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
