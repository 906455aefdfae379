"""Figures of updates, written to a run's files and read back."""

import numpy as np
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from es.monitor.record import Record

RETURNS = np.array([5.0, 10.0, 15.0, np.nan])


def record(update: int) -> Record:
    return Record(
        update, 4 * update, 100 * update, 1.5 * update, 10.0 + update, 2.0, 15.0, 5.0,
        12.0, 2, 3, 0, 25.0, 0.1, 0.05, 3.0, 1000.0,
    )  # fmt: skip


def write(files, record):
    files.add(record, RETURNS)
    files.csv.flush()
    files.events.flush()


def events_of(directory):
    events = EventAccumulator(str(directory), {"tensors": 0, "images": 0, "scalars": 0})
    events.Reload()
    return events


def scalars(directory):
    events = events_of(directory)
    return {
        tag: [(event.step, event.value) for event in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
    }
