"""A run's directory: which one it is, its lock, moving an older run aside, its text files."""

from __future__ import annotations

import csv
import fcntl
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from es.errors import UsageError

LATEST, BEST = "latest.pth", "best.pth"
PROGRESS, SETTINGS, CURVE = "progress.csv", "config.toml", "learning_curve.png"
LOCK = ".lock"


class RunDir:
    """A locked directory. The lock is the process's: it goes with it, however it ends."""

    def __init__(self, path: Path, lock: IO[str]) -> None:
        self.path = path
        self._lock = lock

    def close(self) -> None:
        """Frees the directory for another run."""
        self._lock.close()


def open_new(path: Path, say: Callable[[str], None]) -> RunDir:
    """A directory for a new run; a run that is already there is moved aside and told with `say`.

    Raises UsageError when another process runs in it, or it cannot be written.
    """
    if not _holds_run(path):
        return open_existing(path)
    older = open_existing(path)  # its lock shows that nobody is writing there
    aside = _first_free(lambda number: path.with_name(f"{path.name}.{number}"))
    try:
        path.rename(aside)
        run = open_existing(path)
    except OSError as error:
        raise UsageError(f"--run-dir {path}: cannot be moved aside ({error.strerror})") from error
    finally:
        older.close()
    say(f"{path} held another run: it is now {aside}.")
    return run


def open_existing(path: Path) -> RunDir:
    """Makes the directory if need be, and locks it; raises UsageError as `open_new` does."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock = (path / LOCK).open("a")
    except OSError as error:
        raise UsageError(
            f"--run-dir {path}: cannot be written ({error.strerror}); choose another directory"
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.close()
        raise UsageError(
            f"--run-dir {path}: another run is writing there; wait for it or choose another"
        ) from error
    return RunDir(path, lock)


def choose(run_dir: str | None, default: Path, restore: Path | None) -> tuple[Path, bool]:
    """Where a run is written, and whether it carries on the run that is there.

    run_dir: the user's choice, if any. restore: the checkpoint of ours to start from, if any: a
    run's latest.pth carries that run on, any other leaves the run that it lies in untouched.
    Raises UsageError when the choice is that very run.
    """
    if restore is None:
        return Path(run_dir) if run_dir else default, False
    its_run = restore.parent
    same = run_dir is None or Path(run_dir).resolve() == its_run.resolve()
    if restore.name == LATEST and same:
        return its_run, True
    if run_dir is None:
        return _beside(restore), False
    if same:
        raise UsageError(
            f"--run-dir {run_dir}: holds the run that --restore {restore} belongs to; "
            "choose another, or restore its latest.pth to carry it on"
        )
    return Path(run_dir), False


def write_text(path: Path, text: str) -> None:
    """Replaces a text file as a whole."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(text)
    os.replace(temporary, path)


def carry_csv_on(path: Path, header: Sequence[str], update: int) -> None:
    """Leaves the header and the rows up to `update` in a CSV whose first column counts updates.

    A run that ended between writing its row and its checkpoint plays that update again.
    """
    rows: list[Sequence[str]] = []
    if path.exists():
        with path.open(newline="") as file:
            rows = [row for row in csv.reader(file) if row and row[0].isdigit()]
    kept = [row for row in rows if int(row[0]) <= update and len(row) == len(header)]
    write_text(path, "".join(",".join(row) + "\n" for row in [header, *kept]))


def _holds_run(path: Path) -> bool:
    return any((path / name).exists() for name in (LATEST, BEST, PROGRESS, SETTINGS))


def _beside(checkpoint: Path) -> Path:
    """A fresh directory next to the checkpoint's run, named after both."""
    run = checkpoint.resolve().parent if checkpoint.parent == Path() else checkpoint.parent
    name = f"{run.name}-from-{checkpoint.stem}"
    fresh = run.with_name(name)
    return (
        _first_free(lambda number: run.with_name(f"{name}.{number}")) if fresh.exists() else fresh
    )


def _first_free(candidate: Callable[[int], Path]) -> Path:
    number = 1
    while candidate(number).exists():
        number += 1
    return candidate(number)
