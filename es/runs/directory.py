"""A run's directory: which one it is, its lock, moving an older run aside, its text files."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from es.errors import UsageError

LATEST, BEST = "latest.safetensors", "best.safetensors"
PROGRESS, SETTINGS, CURVE = "progress.csv", "config.toml", "learning_curve.png"
VIDEOS = "videos"
LOCK, ROOM = ".lock", ".room"
ROOM_BYTES = 2**16  # more than a new run's first files
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
IN_THE_WAY = (errno.EEXIST, errno.ENOTDIR)


class RunDir:
    """A locked directory. The lock is the process's: it goes with it, however it ends.

    aside: where the run went that was in the directory before, if there was one.
    """

    def __init__(self, path: Path, lock: IO[str]) -> None:
        self.path = path
        self.aside: Path | None = None
        self._lock = lock

    def check(self) -> None:
        """Raises OSError where the directory is no longer what it was: moved, deleted, replaced."""
        require_same(self._lock.fileno(), self.path / LOCK)

    def close(self) -> None:
        """Frees the directory for another run."""
        self._lock.close()


def require_same(descriptor: int, path: Path) -> None:
    """Raises OSError unless `path` is the open file: what is written to that would be lost."""
    if not path.exists() or not os.path.samestat(os.fstat(descriptor), path.stat()):
        raise OSError(errno.ESTALE, "it was moved, deleted or replaced")


@contextmanager
def writable(path: Path, named: str = "--run-dir") -> Iterator[None]:
    """Raises UsageError, instead of what the system says, when the path cannot be written.

    named: the flag that it comes from.
    """
    try:
        yield
    except (OSError, ValueError, RuntimeError) as error:  # null bytes, loops of links
        full = getattr(error, "errno", None) in FULL
        remedy = "make room, and try again" if full else "choose another"
        reason = _reason(error, path)
        raise UsageError(f"{named} {path}: cannot be written ({reason}); {remedy}") from error


def _reason(error: Exception, path: Path) -> str:
    """Why a path cannot be written, with the name of what is in the way unless it is the path."""
    if getattr(error, "errno", None) in IN_THE_WAY:
        for part in (path, *path.parents):
            if os.path.lexists(part) and not part.is_dir():
                return f"{part} is no directory"
    reason = getattr(error, "strerror", None) or error
    # The second name is what was to be replaced, where one file was to replace another.
    where = getattr(error, "filename2", None) or getattr(error, "filename", None) or path
    return str(reason) if str(where) == str(path) else f"{where}: {reason}"


def open_new(path: Path) -> RunDir:
    """A directory for a new run; a run that is already there is moved aside.

    Raises UsageError when another process runs in it, or it cannot be written or moved.
    """
    with writable(path):
        if not _holds_run(path):
            return open_existing(path)
        if Path.cwd().is_relative_to(path.resolve()):
            raise UsageError(
                f"--run-dir {path}: holds another run, and cannot be moved aside from within; "
                "choose another, or start from outside of it"
            )
        older = open_existing(path)  # its lock shows that nobody is writing there
        try:
            write_text(path / ROOM, " " * ROOM_BYTES)  # a full disk should not move it
            (path / ROOM).unlink()
            aside = move_aside(path)
            run = open_existing(path)
        finally:
            older.close()
        run.aside = aside
        return run


def open_existing(path: Path, named: str = "--run-dir") -> RunDir:
    """Makes the directory if need be, and locks it; raises UsageError as `open_new` does."""
    with writable(path, named):
        path.mkdir(parents=True, exist_ok=True)
        lock = (path / LOCK).open("a")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Whoever moves the directory aside holds the lock until then: is it still this one?
            if os.path.samestat(os.fstat(lock.fileno()), (path / LOCK).stat()):
                return RunDir(path, lock)
        except (BlockingIOError, FileNotFoundError):
            pass
        lock.close()
    raise UsageError(f"{named} {path}: another run is writing there; wait for it or choose another")


def choose(run_dir: str | None, default: Path, restore: Path | None) -> tuple[Path, bool]:
    """Where a run is written, and whether it carries on the run that is there.

    run_dir: the user's choice, if any. restore: the checkpoint of ours to start from, if any: a
    run's latest.safetensors carries that run on, any other leaves the run that it lies in
    untouched. Raises UsageError when the choice is that very run.
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
            "choose another, or restore its latest.safetensors to carry it on"
        )
    return Path(run_dir), False


def move_aside(path: Path) -> Path:
    """Renames a file or directory, and tells to what: path.1, or path.2 ...; raises OSError."""
    aside = _numbered(path)
    path.rename(aside)
    return aside


def replace(path: Path, content: bytes | memoryview) -> None:
    """Writes a whole file to disk or leaves what was there; raises OSError."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str) -> None:
    """Replaces a text file as a whole; raises OSError."""
    replace(path, text.encode("utf-8", errors="replace"))


def _holds_run(path: Path) -> bool:
    return any((path / name).exists() for name in (LATEST, BEST, PROGRESS, SETTINGS))


def _beside(checkpoint: Path) -> Path:
    """A fresh directory next to the checkpoint's run, named after both."""
    run = checkpoint.resolve().parent if checkpoint.parent == Path() else checkpoint.parent
    name = f"{run.name}-from-{checkpoint.stem}"
    fresh = run.with_name(name)
    return _numbered(fresh) if fresh.exists() else fresh


def _numbered(path: Path) -> Path:
    """The first of path.1, path.2 and so on that does not exist."""
    number = 1
    while (free := path.with_name(f"{path.name}.{number}")).exists():
        number += 1
    return free
