"""Reads runs back from their directories, and groups them: a group differs in its seeds alone."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from es.config import Config
from es.config.sources import read_toml
from es.errors import UsageError, in_one_line
from es.reports.comparison.labels import identity, label_groups
from es.reports.progress_csv import Progress, read_progress, smoothing_window
from es.runs.directory import PROGRESS, SETTINGS

EXAMPLE = "give a run's directory, such as checkpoints/CartPole-v1"
WITHOUT_SETTINGS = "runs without settings"


class LoadedRun(NamedTuple):
    """A run's directory, its figures, and its settings, unless these are missing."""

    directory: Path
    progress: Progress
    config: Config | None

    @property
    def task(self) -> str:
        """The environment's name, or what is said instead of it."""
        return self.config.env_name if self.config else WITHOUT_SETTINGS

    @property
    def key(self) -> str:
        """What the run shares with those of its group."""
        return repr(identity(self.config) if self.config else self.directory)


class Group(NamedTuple):
    """Runs that differ in their seeds alone.

    label: what sets them apart from other groups. window: over how many updates the returns of all
    runs of this task are smoothed.
    """

    label: str
    task: str
    window: int
    runs: list[LoadedRun]


def load_runs(names: Sequence[str], warn: Callable[[str], None]) -> list[LoadedRun]:
    """Load the runs in these directories or in folders of theirs, each once.

    Raises UsageError where there is none, or one that cannot be read or has not finished an update;
    one of these in a folder of the directory is told to `warn`, and left out.
    """
    runs: dict[Path, LoadedRun] = {}
    for name in names:
        directory = Path(name)
        for each in _find_runs(directory, warn):
            try:
                runs[each.resolve()] = _load(each)
            except UsageError as error:
                if each == directory:
                    raise UsageError(f"RUN_DIR {error}; leave it out") from error
                warn(in_one_line(f"{error}, and is left out"))
    if not runs:
        raise UsageError(f"RUN_DIR {' '.join(names)}: holds no run that can be compared; {EXAMPLE}")
    return list(runs.values())


def group_runs(runs: Sequence[LoadedRun], warn: Callable[[str], None]) -> list[Group]:
    """Group runs, in the order in which they come; one without settings is a group of its own.

    Runs with the same seed are no independent samples: the one that has come furthest counts, and
    the others are told to `warn`.
    """
    groups: dict[str, dict[Any, LoadedRun]] = {}
    for run in runs:
        seeds = groups.setdefault(run.key, {})
        seed = run.config and run.config.seed
        pair = (seeds.get(seed, run), run)
        further, other = sorted(pair, key=lambda each: each.progress.size, reverse=True)
        seeds[seed] = further
        if other is not further:
            same = f"has the settings and the seed of {further.directory}, and is left out"
            warn(in_one_line(f"{other.directory}: {same}"))
    members = [list(seeds.values()) for seeds in groups.values()]
    updates: dict[str, list[int]] = {}
    for run in itertools.chain(*members):
        updates.setdefault(run.task, []).append(run.progress.size)
    windows = {task: smoothing_window(int(np.median(sizes))) for task, sizes in updates.items()}
    firsts = [each[0] for each in members]
    labels = label_groups([(run.directory, run.config) for run in firsts])
    return [
        Group(label, first.task, windows[first.task], each)
        for label, first, each in zip(labels, firsts, members, strict=True)
    ]


def _find_runs(directory: Path, warn: Callable[[str], None]) -> list[Path]:
    """Return the directory itself, if it is a run's, or else those in it; raises UsageError.

    A folder that cannot be read is told to `warn`.
    """

    def skip(error: OSError) -> None:
        reason = f"{error.filename}: cannot be read ({error.strerror})"
        if error.filename == str(directory):
            raise UsageError(f"RUN_DIR {reason}; {EXAMPLE}") from error
        warn(in_one_line(f"{reason}, and is left out"))

    if not os.path.isdir(directory):  # which, unlike Path.is_dir, raises nothing
        what = "is no directory" if os.path.exists(directory) else "there is no such directory"
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
        raise UsageError(
            f"RUN_DIR {directory}: there is no {PROGRESS} in it, or in a folder of it; {EXAMPLE}"
        )
    return sorted(found)


def _load(directory: Path) -> LoadedRun:
    """Raises UsageError, which begins with the path, for what cannot be compared."""
    path = directory / PROGRESS
    try:
        if not path.is_file():  # but a pipe, from which nothing may ever come
            raise UsageError(f"{path}: is no file")
        progress = read_progress(path)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise UsageError(f"{path}: is no table of a run ({error})") from error
    if not progress.size:
        raise UsageError(f"{directory}: has not finished an update yet")
    settings = directory / SETTINGS
    config = Config(**read_toml(str(settings), "")) if settings.exists() else None
    return LoadedRun(directory, progress, config)
