"""Figures of updates, written to a run's files and read back."""

from pathlib import Path

import numpy as np
from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator
from tensorboard.util.tensor_util import make_ndarray

from es.checkpoint import Counters
from es.config import Config
from es.reports.log import COLUMNS, Record
from es.settings import write_toml

RISING = [float(value) for value in range(30)]
FALLING = [10.0 * value for value in reversed(range(20))]


def record(update: int) -> Record:
    return Record(
        update, 4 * update, 100 * update, 1.5 * update, 10.0 + update, 2.0, 15.0, 5.0,
        12.0, 2, 3, 0, 25.0, 0.1, 0.05, 3.0, 1000.0, 130 * update, 0.01,
    )  # fmt: skip


def counters_after(update: int) -> Counters:
    """The counters after so many of these updates."""
    return Counters(update, 4 * update, 100 * update, 1.5 * update, 1, None, 0.1, 0.1)


def write_progress(directory: Path, count: int, **columns) -> Path:
    """A progress.csv of so many updates, with columns replaced by one value or one per update."""
    directory.mkdir(parents=True, exist_ok=True)
    table = np.array([record(update) for update in range(1, count + 1)]).reshape(-1, len(COLUMNS))
    for name, values in columns.items():
        table[:, COLUMNS.index(name)] = values
    path = directory / "progress.csv"
    lines = [",".join(COLUMNS), *(",".join(map(repr, row)) for row in table.tolist())]
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def a_run(name: str | Path, returns=(1.0, 2.0), settings=None, **columns) -> str:
    """The name of a run's directory, of CartPole unless the settings say otherwise."""
    directory = Path(name)
    write_progress(directory, len(returns), unperturbed_return=returns, **columns)
    config = Config(**{"env_name": "CartPole-v1", "small_net": True} | (settings or {}))
    (directory / "config.toml").write_text(write_toml(config.saved(), ""))
    return str(name)


def events_of(directory: Path) -> EventAccumulator:
    """What TensorBoard shows of a run."""
    events = EventAccumulator(str(directory), {"tensors": 0})
    events.Reload()
    return events


def scalars(directory: Path) -> dict[str, list[tuple[int, float]]]:
    events = events_of(directory)
    return {
        tag: [(each.step, make_ndarray(each.tensor_proto).item()) for each in events.Tensors(tag)]
        for tag in events.PluginTagToContent("scalars")
    }
