"""Runs read back from their directories, and grouped: seeds of the same thing are one group."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from es.config import Config
from es.config.sources import read_toml
from es.errors import UsageError, in_one_line
from es.reports.comparison.labels import identity, labels
from es.reports.progress_csv import Progress, read_progress
from es.runs.directory import PROGRESS, SETTINGS

EXAMPLE = "give a run's directory, such as checkpoints/CartPole-v1"
WITHOUT_SETTINGS = "runs without settings"


class Run(NamedTuple):
    """A run's directory, its figures, and its settings, unless these are missing."""

    directory: Path
    progress: Progress
    config: Config | None


class Group(NamedTuple):
    """Runs that differ in their seeds alone. label: what sets them apart from other groups."""

    label: str
    runs: list[Run]

    @property
    def task(self) -> str | None:
        """The environment's name, unless the settings are missing."""
        config = self.runs[0].config
        return config.env_name if config else None


def load(names: Sequence[str], warn: Callable[[str], None]) -> list[Run]:
    """The runs in these directories or in folders of theirs, each once.

    Raises UsageError where there is none, or one that cannot be read or has not finished an update;
    one of these in a folder of the directory is told to `warn`, and left out.
    """
    runs: dict[Path, Run] = {}
    for name in names:
        directory = Path(name)
        for each in _directories(directory, warn):
            try:
                runs[each.resolve()] = _read(each)
            except UsageError as error:
                if each == directory:
                    raise UsageError(f"RUN_DIR {error}; leave it out") from error
                warn(in_one_line(f"{error}, and is left out"))
    if not runs:
        raise UsageError(f"RUN_DIR {' '.join(names)}: holds no run that can be compared; {EXAMPLE}")
    return list(runs.values())


def group(runs: Sequence[Run], warn: Callable[[str], None]) -> list[Group]:
    """The groups, in the order of their first runs. One without settings is a group of its own.

    Of runs with the same seed, which are no independent samples, one that has come furthest counts;
    the others are told to `warn`.
    """
    groups: dict[str, list[Run]] = {}
    for run in runs:
        key = repr(identity(run.config)) if run.config else str(run.directory)
        groups.setdefault(key, []).append(run)
    for key, members in groups.items():
        furthest: dict[Any, Run] = {}
        for run in sorted(members, key=lambda run: -run.progress["update"].size):
            kept = furthest.setdefault(run.config and run.config.seed, run)
            if kept is not run:
                again = f"has the settings and the seed of {kept.directory}, and is left out"
                warn(in_one_line(f"{run.directory}: {again}"))
        kept_ones = {id(run) for run in furthest.values()}
        groups[key] = [run for run in members if id(run) in kept_ones]
    firsts = [each[0] for each in groups.values()]
    names = labels([(run.directory, run.config) for run in firsts])
    return [Group(name, each) for name, each in zip(names, groups.values(), strict=True)]


def common(values: Sequence[Any]) -> Any:
    """The value that all of them are, or None."""
    return values[0] if all(value == values[0] for value in values) else None


def _directories(directory: Path, warn: Callable[[str], None]) -> list[Path]:
    """The directory itself, if it is a run's, or else those in it; raises UsageError for none.

    A folder that cannot be read is told to `warn`.
    """
    found: list[Path] = []

    def skip(error: OSError) -> None:
        if error.filename == str(directory):
            raise error
        warn(in_one_line(f"{error.filename}: cannot be read ({error.strerror}), and is left out"))

    try:
        if not directory.is_dir():
            what = "is no directory" if directory.exists() else "there is no such directory"
            raise UsageError(f"RUN_DIR {directory}: {what}; {EXAMPLE}")
        if (directory / PROGRESS).is_file():
            return [directory]
        for path, folders, files in os.walk(directory, onerror=skip, followlinks=True):
            if PROGRESS in files:
                found.append(Path(path))
            # The name of an environment, and so its default directory, may have a slash in it.
            if len(Path(path).relative_to(directory).parts) == 2:
                folders.clear()
    except (OSError, ValueError) as error:  # a name that is too long, or has a null byte
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"RUN_DIR {directory}: cannot be read ({reason}); {EXAMPLE}") from error
    if not found:
        raise UsageError(
            f"RUN_DIR {directory}: there is no {PROGRESS} in it, or in a folder of it; {EXAMPLE}"
        )
    return sorted(found)


def _read(directory: Path) -> Run:
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
    if not progress["update"].size:
        raise UsageError(f"{directory}: has not finished an update yet")
    settings = directory / SETTINGS
    config = Config(**read_toml(str(settings), "")) if settings.exists() else None
    return Run(directory, progress, config)
