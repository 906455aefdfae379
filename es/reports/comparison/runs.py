"""Load runs from their directories, and group those that differ in their seeds alone."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from es.algorithm.noise import DoubleArray
from es.config import Config
from es.errors import UsageError, in_one_line
from es.reports.comparison.labels import identity, label_groups
from es.reports.tables import (
    Table,
    read_evaluations,
    read_progress,
    running_mean,
    smoothing_window,
)
from es.run import EVALUATIONS, PROGRESS, SETTINGS
from es.settings import CHANGED, read_toml

EXAMPLE = "give a run's directory, such as checkpoints/CartPole-v1"
WITHOUT_SETTINGS = "runs without settings"


class LoadedRun(NamedTuple):
    """A run's directory, its updates and evaluations, and its settings if it has any.

    changed: whether other settings held before these.
    """

    directory: Path
    progress: Table
    evaluations: Table
    config: Config | None
    changed: bool = False

    @property
    def task(self) -> str:
        """Return the environment's name, or words in its place."""
        return self.config.env_name if self.config else WITHOUT_SETTINGS

    @property
    def key(self) -> str:
        """Return what the run shares with the others of its group."""
        return repr(identity(self.config) if self.config else self.directory)

    def smoothed(self, window: int) -> DoubleArray:
        """Return (updates,): the running mean of the unperturbed returns."""
        return running_mean(self.progress["unperturbed_return"], window)

    def evaluated(self, column: str) -> tuple[DoubleArray, DoubleArray]:
        """Return the evaluations' places by a column of progress.csv, and their means."""
        updates, places = (np.insert(self.progress[name], 0, 0) for name in ("update", column))
        return np.interp(self.evaluations["update"], updates, places), self.evaluations["mean"]


class Group(NamedTuple):
    """Runs that differ in their seeds alone.

    label: what sets them apart from other groups. window: the number of updates over which the
    returns of all runs of this task are smoothed.
    """

    label: str
    task: str
    window: int
    runs: list[LoadedRun]


def load_runs(names: Sequence[str], warn: Callable[[str], None]) -> list[LoadedRun]:
    """Load the runs in these directories or in folders of theirs, each once.

    Raise UsageError if there are none, or if a given directory has a run that cannot be read or has
    not finished an update. In a folder of a directory, such a run is reported to `warn` and left
    out.
    """
    runs: dict[Path, LoadedRun] = {}
    for name in names:
        directory = Path(name)
        for each in _find_runs(directory, warn):
            try:
                run = runs[each.resolve()] = _load(each)
            except UsageError as error:
                if each == directory:
                    raise UsageError(f"RUN_DIR {error}; leave it out") from error
                warn(in_one_line(f"{error}, and is left out"))
                continue
            if run.changed:
                counts = f"counts as a run by its last settings; {SETTINGS} has those before"
                warn(in_one_line(f"{each}: {counts}"))
    if not runs:
        raise UsageError(f"RUN_DIR {' '.join(names)}: holds no run that can be compared; {EXAMPLE}")
    return list(runs.values())


def group_runs(runs: Sequence[LoadedRun], warn: Callable[[str], None]) -> list[Group]:
    """Group runs, in their order; a run without settings is a group of its own.

    Runs with the same seed are not independent samples: the longest one counts, and the others are
    reported to `warn`.
    """
    groups: dict[str, dict[Any, LoadedRun]] = {}
    for run in runs:
        seeds = groups.setdefault(run.key, {})
        seed = run.config and run.config.seed
        pair = (seeds.get(seed, run), run)
        longer, other = sorted(pair, key=lambda each: each.progress.size, reverse=True)
        seeds[seed] = longer
        if other is not longer:
            same = f"has the settings and the seed of {longer.directory}, and is left out"
            warn(in_one_line(f"{other.directory}: {same}"))
    members = [list(seeds.values()) for seeds in groups.values()]
    sizes: dict[str, list[int]] = {}  # by task
    for each in members:
        sizes.setdefault(each[0].task, []).extend(run.progress.size for run in each)
    windows = {task: smoothing_window(int(np.median(each))) for task, each in sizes.items()}
    labels = label_groups([(each[0].directory, each[0].config) for each in members])
    return [
        Group(label, each[0].task, windows[each[0].task], each)
        for label, each in zip(labels, members, strict=True)
    ]


def _find_runs(directory: Path, warn: Callable[[str], None]) -> list[Path]:
    """Return the directory if it is a run's, or else the runs in it; raise UsageError."""

    def skip(error: OSError) -> None:
        reason = f"{error.filename}: cannot be read ({error.strerror})"
        if error.filename == str(directory):
            raise UsageError(f"RUN_DIR {reason}; {EXAMPLE}") from error
        warn(in_one_line(f"{reason}, and is left out"))

    if not os.path.isdir(directory):  # unlike Path.is_dir, this raises nothing
        what = "is not a directory" if os.path.exists(directory) else "there is no such directory"
        raise UsageError(f"RUN_DIR {directory}: {what}; {EXAMPLE}")
    if os.path.isfile(directory / PROGRESS):
        return [directory]
    found: list[Path] = []
    for path, folders, files in os.walk(directory, onerror=skip, followlinks=True):
        if PROGRESS in files:
            found.append(Path(path))
        # The name of an environment, and so its default directory, may have a slash in it.
        if len(Path(path).relative_to(directory).parts) == 2:
            folders.clear()
    if not found:
        where = f"there is no {PROGRESS} in it, or in a folder of it"
        raise UsageError(f"RUN_DIR {directory}: {where}; {EXAMPLE}")
    return sorted(found)


def _load(directory: Path) -> LoadedRun:
    progress = _table(read_progress, directory / PROGRESS)
    if not progress.size:
        raise UsageError(f"{directory}: has not finished an update yet")
    evaluations = _table(read_evaluations, directory / EVALUATIONS)
    settings = directory / SETTINGS
    if not settings.exists():
        return LoadedRun(directory, progress, evaluations, None)
    config = Config(**read_toml(str(settings), str(settings)))
    changed = settings.read_text("utf-8").startswith(CHANGED)
    return LoadedRun(directory, progress, evaluations, config, changed)


def _table(read: Callable[[Path], Table], path: Path) -> Table:
    try:
        if path.exists() and not path.is_file():  # such as a pipe, which may never yield anything
            raise UsageError(f"{path}: is no file")
        return read(path)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise UsageError(f"{path}: is no table of a run ({error})") from error
