"""Event files for TensorBoard: scalars, histograms, images and hyperparameters by step.

Records are written by TensorBoard's RecordWriter. Its EventFileWriter (and with it SummaryWriter)
would lose events and end its thread with a traceback when the disk is full.
"""

import io
import os
import re
import socket
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.histogram.summary_v2 import histogram_pb
from tensorboard.plugins.hparams import api_pb2 as api
from tensorboard.plugins.hparams import metadata as hparams
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData
from tensorboard.plugins.hparams.summary_v2 import hparams_pb
from tensorboard.summary.writer.record_writer import RecordWriter

from es.reports.append_only import AppendOnlyFile, Place
from es.reports.record import Distributions, Figures

EVENTS = "events.out.tfevents"
MOMENT = re.compile(rf"{re.escape(EVENTS)}\.(\d{{1,19}})\.")  # in nanoseconds
BUCKETS = 20
SHOWN_FIRST = ("env_name", "lr", "n", "optimizer", "sigma")
TYPES = {bool: api.DATA_TYPE_BOOL, str: api.DATA_TYPE_STRING}
Settings = Mapping[str, bool | float | str | None]


class EventFile(AppendOnlyFile):
    """Write a new event file, which TensorBoard shows as a run with its directory's name.

    purge_step: TensorBoard forgets all events of older files in the directory from this step on,
    since a resumed run writes them again. Events stay in memory until `flush`. Raises OSError.
    """

    def __init__(self, place: Place, purge_step: int | None = None) -> None:
        # TensorBoard reads the files of a directory in the order of their names.
        moments = [time.time_ns()]
        for path in place.path.glob(f"{EVENTS}.*"):
            if found := MOMENT.match(path.name):
                moments.append(int(found[1]) + 1)  # the clock may have been set back since
        name = f"{EVENTS}.{max(moments)}.{socket.gethostname()}.{os.getpid()}"
        super().__init__(place, name, _event(0, file_version="brain.Event:2"))
        if purge_step is not None:
            self._add(purge_step, session_log=SessionLog(status=SessionLog.START))
        self.flush()

    def add(self, step: int, figures: Figures, distributions: Distributions) -> None:
        """Add figures and distributions by tag; a tag's part before the slash is its group."""
        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in figures.items()]
        for tag, numbers in distributions.items():
            values.extend(histogram_pb(tag, numbers, buckets=BUCKETS).value)
        self._add(step, summary=Summary(value=values))

    def add_image(self, tag: str, image: bytes, step: int) -> None:
        """Add an image, given as the content of a PNG or an animated GIF file."""
        value = Summary.Value(tag=tag, image=Summary.Image(encoded_image_string=image))
        self._add(step, summary=Summary(value=[value]))

    def add_hyperparameters(self, settings: Settings, metrics: Sequence[str]) -> None:
        """Add the settings to compare runs by, and the tags of their results.

        A setting of None is a number that this run does not have. TensorBoard shows the settings in
        SHOWN_FIRST until the user selects others.
        """
        experiment = api.Experiment(
            hparam_infos=[
                api.HParamInfo(
                    name=name,
                    type=TYPES.get(type(value), api.DATA_TYPE_FLOAT64),
                    differs=name in SHOWN_FIRST,
                )
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
        trial = f"{self._path.parent.name} {datetime.now():%Y-%m-%d %H:%M:%S.%f}"
        self._add(0, summary=Summary(value=[columns]))
        self._add(0, summary=hparams_pb(given, trial))

    def _add(self, step: int, **content: Any) -> None:
        self.write(_event(step, **content))


def _event(step: int, **content: Any) -> bytes:
    record = io.BytesIO()
    event = Event(wall_time=time.time(), step=step, **content)
    RecordWriter(record).write(event.SerializeToString())
    return record.getvalue()
