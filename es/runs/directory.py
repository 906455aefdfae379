"""A run's directory: how it is chosen and locked, and how files in it are replaced."""

import errno
import fcntl
import itertools
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import IO

from es.checkpoint import BEST, LATEST, replace
from es.errors import UsageError
from es.reports import PROGRESS, SETTINGS

LOCK = ".lock"
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
IN_THE_WAY = (errno.EEXIST, errno.ENOTDIR)
NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)


class InUseError(UsageError):
    """Another process writes to the directory."""


class RunDir:
    """A locked directory. The system frees the lock when the process ends.

    A file system without locks, such as some NFS and Lustre mounts, protects no directory.
    """

    def __init__(self, path: Path, lock: IO[str]) -> None:
        self.path, self._lock = path, lock

    def close(self) -> None:
        """Free the directory for another run."""
        self._lock.close()


@contextmanager
def writable(path: Path, named: str = "--run-dir") -> Iterator[None]:
    """Raise UsageError instead of the system's error if the path cannot be written.

    named: the flag that the path was given with.
    """
    try:
        yield
    except (OSError, ValueError, RuntimeError) as error:  # null bytes, loops of links
        full = getattr(error, "errno", None) in FULL
        remedy = "make room, and try again" if full else "choose another"
        reason = _reason(error, path)
        raise UsageError(f"{named} {path}: cannot be written ({reason}); {remedy}") from error


def _reason(error: Exception, path: Path) -> str:
    """Return why a path cannot be written; name the file in the way unless it is the path."""
    if getattr(error, "errno", None) in IN_THE_WAY:
        for part in (path, *path.parents):
            if os.path.lexists(part) and not part.is_dir():
                return f"{part} is not a directory"
    reason = getattr(error, "strerror", None) or error
    # If one file was to replace another, the second name is that of the other.
    where = getattr(error, "filename2", None) or getattr(error, "filename", None) or path
    return str(reason) if str(where) == str(path) else f"{where}: {reason}"


def open_new(path: Path, *, chosen: bool = False) -> RunDir:
    """Make and lock a directory for a new run: the first of path, path.2, path.3 ... without one.

    chosen: whether the user named it. Raise UsageError if it cannot be written, or if the user
    named it and another process runs in it.
    """
    with writable(path):
        if chosen and _holds_run(path):
            open_existing(path, shared=True).close()
        for candidate in _numbered(path):
            try:
                if not _holds_run(candidate):
                    run = open_existing(candidate)
                    if not _holds_run(candidate):  # as it may since, before it was locked
                        return run
                    run.close()
            except InUseError:
                if chosen and candidate == path:
                    raise
    raise AssertionError("numbers have no end")


def open_existing(path: Path, named: str = "--run-dir", *, shared: bool = False) -> RunDir:
    """Make the directory unless it exists, and lock it.

    shared: several processes may lock it so at once. Raise UsageError if it cannot be written, and
    InUseError if another process has locked it. Without locks in the file system, warn once.
    """
    with writable(path, named):
        path.mkdir(parents=True, exist_ok=True)
        lock = (path / LOCK).open("a+")  # NFS gives a shared lock only for reading
        try:
            fcntl.flock(lock, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except OSError as error:
            if isinstance(error, BlockingIOError):
                lock.close()
                raise InUseError(
                    f"{named} {path}: another run is writing there; wait for it or choose another"
                ) from error
            if error.errno not in NO_LOCKS:
                raise
            _warn_of_no_locks(path.absolute().parent, error.strerror)
        return RunDir(path, lock)


@cache  # so that it warns once
def _warn_of_no_locks(folder: Path, reason: str) -> None:
    with suppress(OSError):
        print(
            f"warning: {folder}: its file system has no locks ({reason}), so nothing keeps two "
            "runs from writing to one directory",
            file=sys.stderr,
            flush=True,
        )


def default_path(folder: str, env_name: str) -> Path:
    """Return the directory for an environment, without a colon: `scp` would take it for a host."""
    return Path(folder, env_name.replace(":", "."))


def choose(run_dir: str | None, default: Path, restore: Path | None) -> tuple[Path, bool]:
    """Return the directory to write to, and whether to continue the run that is there.

    run_dir: the user's choice, if any. restore: our checkpoint to start from, if any. A
    latest.safetensors continues its run; any other checkpoint leaves its run as it is: raise
    UsageError if the user chose that run's directory. A checkpoint that lies alone has no run.
    """
    if restore is None:
        return Path(run_dir) if run_dir else default, False
    its_run = restore.parent
    same = run_dir is None or Path(run_dir).resolve() == its_run.resolve()
    if restore.name == LATEST and same:
        return its_run, True
    if run_dir is None and not _holds_run(its_run):
        return default, False
    if run_dir is None:  # next to the checkpoint's run, named after both
        return _beside(its_run, f"-from-{restore.stem}"), False
    if same:
        raise UsageError(
            f"--run-dir {run_dir}: holds the run that --restore {restore} belongs to; "
            "choose another, or restore its latest.safetensors to carry it on"
        )
    return Path(run_dir), False


def write_text(path: Path, text: str) -> None:
    """Replace a text file as a whole; raise OSError."""
    replace(path, text.encode("utf-8", errors="replace"))


def _holds_run(path: Path) -> bool:
    return any((path / name).exists() for name in (LATEST, BEST, PROGRESS, SETTINGS))


def _numbered(path: Path) -> Iterator[Path]:
    """Return path, path.2, path.3 and so on."""
    yield path
    for number in itertools.count(2):
        yield _beside(path, f".{number}")


def _beside(path: Path, suffix: str) -> Path:
    """Return the path with a suffix to its name."""
    named = path if path.name not in ("", "..") else path.resolve()
    return named.with_name(named.name + suffix)
