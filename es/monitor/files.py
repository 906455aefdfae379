"""progress.csv and TensorBoard events: one row, one step per update."""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Mapping
from pathlib import Path

from google.protobuf.message import DecodeError
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c
from tensorboard.summary.writer.record_writer import RecordWriter

from es.monitor.record import COLUMNS, Record
from es.rundir import PROGRESS, carry_csv_on, require_same

EVENTS = "events.out.tfevents"
EVALUATION = "evaluation/"


class GrowingFile:
    """A file at whose end is written. What the disk did not take waits, and goes first next time.

    So nothing is lost, doubled or torn when a write stops half-way.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._file = path, path.open("ab", buffering=0)
        self._waiting = bytearray()

    def write(self, data: bytes) -> None:
        """Has the data written by the next `flush`."""
        self._waiting += data

    def flush(self) -> None:
        """Writes what waits, so that a reader sees it; raises OSError."""
        require_same(self._file.fileno(), self._path)
        while self._waiting:
            del self._waiting[: self._file.write(self._waiting)]

    def close(self) -> None:
        """Closes the file, without what waits."""
        self._file.close()


class ProgressFiles:
    """The figures of a run, on disk.

    update, evaluated: of the checkpoint that the run carries on from. What its files hold beyond
    is played again, and dropped.
    """

    def __init__(self, directory: Path, update: int, evaluated: int) -> None:
        carry_csv_on(directory / PROGRESS, COLUMNS, update)
        for path in directory.glob(f"{EVENTS}.*"):
            carry_events_on(path, update, evaluated)
        # TensorBoard reads them in the order of their names.
        seconds, nanoseconds = divmod(time.time_ns(), 10**9)
        name = f"{EVENTS}.{seconds:010d}.{nanoseconds:09d}.{socket.gethostname()}.{os.getpid()}"
        self.csv, self.events = GrowingFile(directory / PROGRESS), GrowingFile(directory / name)
        self._records = RecordWriter(self.events)
        self._write_event(Event(file_version="brain.Event:2"))
        # A TensorBoard that is looking on forgets what was dropped.
        self._write_event(Event(session_log=SessionLog(status=SessionLog.START)), update + 1)
        self.events.flush()

    def add(self, record: Record) -> None:
        """Adds an update; flushing both files writes it."""
        self.csv.write((",".join(map(str, record)) + "\n").encode())
        named = zip(COLUMNS[1:], record[1:], strict=True)  # all but the update itself
        self._add_scalars({_tag(column): value for column, value in named}, record.update)

    def add_evaluation(self, update: int, mean: float, std: float) -> None:
        """Adds the evaluation of the parameters after `update` updates to the events."""
        figures = {f"{EVALUATION}return_mean": mean, f"{EVALUATION}return_std": std}
        self._add_scalars(figures, update)

    def close(self) -> None:
        """Closes both."""
        self.csv.close()
        self.events.close()

    def _add_scalars(self, figures: Mapping[str, float], update: int) -> None:
        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in figures.items()]
        self._write_event(Event(summary=Summary(value=values)), update)

    def _write_event(self, event: Event, step: int = 0) -> None:
        event.wall_time, event.step = time.time(), step
        self._records.write(event.SerializeToString())


def carry_events_on(path: Path, update: int, evaluated: int) -> None:
    """Cuts a file of events off before figures beyond `update`, or evaluations beyond `evaluated`.

    A run that ended between writing its figures and its checkpoint writes them again.
    """
    size, start = path.stat().st_size, 0
    with path.open("r+b") as file:
        # A record is its length, a checksum, that many bytes, and another checksum.
        while len(header := file.read(12)) == 12:
            length, checksum = struct.unpack("<QI", header)
            if masked_crc32c(header[:8]) != checksum or length > size - file.tell():
                return  # torn, as when the process was killed
            try:
                event = Event.FromString(file.read(length))
            except DecodeError:
                return
            tags = [value.tag for value in event.summary.value]
            if tags and event.step > (evaluated if tags[0].startswith(EVALUATION) else update):
                file.truncate(start)
                return
            start = file.seek(4, os.SEEK_CUR)


def _tag(column: str) -> str:
    if "return" in column or column in ("unperturbed_rank", "elite_count", "non_finite"):
        return f"returns/{column}"
    if column in ("lr", "sigma", "grad_norm"):
        return f"optimisation/{column}"
    return f"progress/{column}"
