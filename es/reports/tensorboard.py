"""Event files, which TensorBoard shows: scalars, histograms, images and hyperparameters by step."""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c
from tensorboard.plugins.histogram.summary_v2 import histogram_pb
from tensorboard.plugins.hparams import api_pb2 as api
from tensorboard.plugins.hparams import metadata as hparams
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData
from tensorboard.plugins.hparams.summary_v2 import hparams_pb
from tensorboard.summary.writer.record_writer import RecordWriter

from es.reports.append_only import GrowingFile

EVENTS = "events.out.tfevents"
BUCKETS = 20
PNG = b"\x89PNG"
FIRST = ("env_name", "lr", "n", "optimizer", "sigma")
Settings = Mapping[str, bool | float | str | None]
Last = Callable[[str], int]  # by tag: the last step that is kept when a run is carried on


class EventFile:
    """A new event file in `directory`, which TensorBoard takes for a run of that name.

    step: the last one that the files already there may hold; later ones are dropped from them,
    since the run that is carried on writes them again. None: they are left as they are. last: the
    same by tag, where they differ. What is added is in memory, and `flush` writes it. Raises
    OSError.
    """

    def __init__(self, directory: Path, step: int | None = None, last: Last | None = None) -> None:
        self._trial = f"{directory.name} {datetime.now():%Y-%m-%d %H:%M:%S.%f}"
        if step is not None:
            for path in directory.glob(f"{EVENTS}.*"):
                carry_events_on(path, last or (lambda tag: step))
        # TensorBoard reads them in the order of their names.
        seconds, nanoseconds = divmod(time.time_ns(), 10**9)
        name = f"{EVENTS}.{seconds:010d}.{nanoseconds:09d}.{socket.gethostname()}.{os.getpid()}"
        self._file = GrowingFile(directory / name)
        self._records = RecordWriter(self._file)
        self._add(Event(file_version="brain.Event:2"), 0)
        if step is not None:  # a TensorBoard that is looking on forgets what was dropped
            self._add(Event(session_log=SessionLog(status=SessionLog.START)), step + 1)
        self.flush()

    def add_scalars(self, figures: Mapping[str, float], step: int) -> None:
        """Adds figures by tag; what stands before its slash is the group they are shown in."""
        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in figures.items()]
        self._add(Event(summary=Summary(value=values)), step)

    def add_histogram(self, tag: str, values: npt.NDArray[np.float64], step: int) -> None:
        """Adds the distribution of numbers; of those that are not finite, nothing is seen."""
        finite = values[np.isfinite(values)]
        with np.errstate(over="ignore"):
            drawable = finite.size and np.isfinite(np.ptp(finite))
        if drawable:
            self._add(Event(summary=histogram_pb(tag, finite, buckets=BUCKETS)), step)

    def add_image(self, tag: str, image: bytes, step: int) -> None:
        """Adds a PNG or an animated GIF, as the bytes of its file."""
        where, numbers = (16, ">II") if image.startswith(PNG) else (6, "<HH")
        width, height = struct.unpack_from(numbers, image, where)
        picture = Summary.Image(width=width, height=height, encoded_image_string=image)
        self._add(Event(summary=Summary(value=[Summary.Value(tag=tag, image=picture)])), step)

    def add_hyperparameters(self, settings: Settings, metrics: Sequence[str]) -> None:
        """Adds the settings by which runs can be compared, and the tags of what they came to.

        An unset one (None) is a number that other runs may have. TensorBoard shows those of FIRST
        until others are ticked.
        """
        experiment = api.Experiment(
            hparam_infos=[
                api.HParamInfo(name=name, type=_type(value), differs=name in FIRST)
                for name, value in settings.items()
            ],
            metric_infos=[api.MetricInfo(name=api.MetricName(tag=tag)) for tag in metrics],
        )
        columns = Summary.Value(
            tag=hparams.EXPERIMENT_TAG,
            metadata=hparams.create_summary_metadata(HParamsPluginData(experiment=experiment)),
            tensor=hparams.NULL_TENSOR,
        )
        given = {name: value for name, value in settings.items() if value is not None}
        for summary in (Summary(value=[columns]), hparams_pb(given, self._trial)):
            self._add(Event(summary=summary), 0)

    def flush(self) -> None:
        """Writes what was added, so that TensorBoard sees it; raises OSError."""
        self._file.flush()

    def close(self) -> None:
        """Closes the file, without what was not flushed."""
        self._file.close()

    def _add(self, event: Event, step: int) -> None:
        event.wall_time, event.step = time.time(), step
        self._records.write(event.SerializeToString())


def carry_events_on(path: Path, last: Last) -> None:
    """Cuts a file of events off before the first that is later than the last step of its tag.

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
            if tags and event.step > last(tags[0]):
                file.truncate(start)
                return
            start = file.seek(4, os.SEEK_CUR)


def _type(value: bool | float | str | None) -> int:
    if isinstance(value, bool):
        return api.DATA_TYPE_BOOL
    return api.DATA_TYPE_STRING if isinstance(value, str) else api.DATA_TYPE_FLOAT64
