"""Figures of updates, written to a run's files and read back."""

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator
from tensorboard.util.tensor_util import make_ndarray

from es.checkpoint import Counters
from es.config import Config
from es.reports.append_only import Place
from es.reports.comparison.runs import group_runs, load_runs
from es.reports.files import ProgressFiles
from es.reports.record import COLUMNS, EvaluationRecord, Record, describe_evaluation
from es.settings import write_toml

RETURNS = np.array([5.0, 10.0, 15.0, np.nan])
RISING = [float(value) for value in range(30)]
FALLING = [10.0 * value for value in reversed(range(20))]


def record(update: int) -> Record:
    return Record(
        update, 4 * update, 100 * update, 1.5 * update, 10.0 + update, 2.0, 15.0, 5.0,
        12.0, 2, 3, 0, 25.0, 0.1, 0.05, 3.0, 1000.0,
    )  # fmt: skip


def evaluation(update: int) -> EvaluationRecord:
    counters = counters_after(update)._replace(wall_seconds=1.5 * update)
    return describe_evaluation(counters, [float(update), update + 2.0])


def counters_after(update: int) -> Counters:
    """The counters after so many of these updates."""
    return Counters(update, 4 * update, 100 * update, 0.0, 1, None, 0.1, 0.1)


def files_of(directory: Path, update: int = 0, **place: Any) -> ProgressFiles:
    """The files of a run, carried on from the checkpoint after so many updates."""
    return ProgressFiles(Place(directory, **place), counters_after(update))


def write(files, *records):
    for each in records:
        if isinstance(each, Record):
            files.add(each, RETURNS)
        else:
            files.add_evaluation(each)
    for file in (files.csv, files.evaluations, files.events):
        file.flush()


def write_progress(directory, count, **columns):
    """A progress.csv of so many updates, with columns replaced by one value or one per update."""
    directory.mkdir(parents=True, exist_ok=True)
    table = np.array([record(update) for update in range(1, count + 1)]).reshape(-1, len(COLUMNS))
    for name, values in columns.items():
        table[:, COLUMNS.index(name)] = values
    path = directory / "progress.csv"
    lines = [",".join(COLUMNS), *(",".join(map(repr, row)) for row in table.tolist())]
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def a_run(name, returns=(1.0, 2.0), settings=None, **columns):
    """A run's directory, of CartPole unless the settings say otherwise."""
    directory = Path(name)
    write_progress(directory, len(returns), unperturbed_return=returns, **columns)
    config = Config(**{"env_name": "CartPole-v1", "small_net": True} | (settings or {}))
    (directory / "config.toml").write_text(write_toml(config.saved()))
    return directory


def without_settings(name, returns=(1.0, 2.0), **columns):
    directory = a_run(name, returns, **columns)
    (directory / "config.toml").unlink()
    return directory


def groups(*directories):
    """The runs in directories, as compare.py groups them, without a warning."""
    return group_runs(load_runs(list(map(str, directories)), pytest.fail), pytest.fail)


def png(width, height):
    """The beginning of one."""
    return b"\x89PNG\r\n\x1a\n" + bytes(8) + struct.pack(">II", width, height)


def events_of(directory):
    """What TensorBoard shows of a run."""
    events = EventAccumulator(str(directory), {"tensors": 0})
    events.Reload()
    return events


def scalars(directory):
    events = events_of(directory)
    return {
        tag: [(each.step, make_ndarray(each.tensor_proto).item()) for each in events.Tensors(tag)]
        for tag in events.PluginTagToContent("scalars")
    }
