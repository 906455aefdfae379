"""A run's directory: how it is chosen and locked, and how files in it are replaced."""

import errno
import fcntl
import itertools
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
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
    """A locked directory. The system frees the lock when the process ends.

    aside: where the directory's earlier run was moved, if there was one.
    """

    def __init__(self, path: Path, lock: IO[str]) -> None:
        self.path, self._lock = path, lock
        self.aside: Path | None = None

    def check(self) -> None:
        """Raise OSError if the directory was moved, deleted or replaced."""
        require_same(self._lock.fileno(), self.path / LOCK)

    def close(self) -> None:
        """Free the directory for another run."""
        self._lock.close()


def require_same(descriptor: int, path: Path) -> None:
    """Raise OSError unless `path` is the open file: what is written to the file would be lost."""
    if not path.exists() or not os.path.samestat(os.fstat(descriptor), path.stat()):
        raise OSError(errno.ESTALE, "it was moved, deleted or replaced")


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
                return f"{part} is no directory"
    reason = getattr(error, "strerror", None) or error
    # If one file was to replace another, the second name is that of the other.
    where = getattr(error, "filename2", None) or getattr(error, "filename", None) or path
    return str(reason) if str(where) == str(path) else f"{where}: {reason}"


def open_new(path: Path) -> RunDir:
    """Make and lock a directory for a new run; move a run that is already there aside.

    Raise UsageError if another process runs in it, or if it cannot be written or moved.
    """
    with writable(path):
        if not _holds_run(path):
            return open_existing(path)
        if Path.cwd().is_relative_to(path.resolve()):
            raise UsageError(
                f"--run-dir {path}: holds another run, and cannot be moved aside from within; "
                "choose another, or start from outside of it"
            )
        with closing(open_existing(path)):  # the lock shows that nobody is writing there
            write_text(path / ROOM, " " * ROOM_BYTES)  # on a full disk, leave the run in place
            (path / ROOM).unlink()
            aside = move_aside(path)
            run = open_existing(path)
        run.aside = aside
        return run


def open_existing(path: Path, named: str = "--run-dir") -> RunDir:
    """Make the directory unless it exists, and lock it; raise UsageError as `open_new` does."""
    with writable(path, named):
        path.mkdir(parents=True, exist_ok=True)
        lock = (path / LOCK).open("a")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # A process that moved the directory aside held the lock: is it still this directory?
            if os.path.samestat(os.fstat(lock.fileno()), (path / LOCK).stat()):
                return RunDir(path, lock)
        except (BlockingIOError, FileNotFoundError):
            pass
        lock.close()
    raise UsageError(f"{named} {path}: another run is writing there; wait for it or choose another")


def choose(run_dir: str | None, default: Path, restore: Path | None) -> tuple[Path, bool]:
    """Return the directory to write to, and whether to continue the run that is there.

    run_dir: the user's choice, if any. restore: our checkpoint to start from, if any. A
    latest.safetensors continues its run; any other checkpoint leaves its run as it is: raise
    UsageError if the user chose that run's directory.
    """
    if restore is None:
        return Path(run_dir) if run_dir else default, False
    its_run = restore.parent
    same = run_dir is None or Path(run_dir).resolve() == its_run.resolve()
    if restore.name == LATEST and same:
        return its_run, True
    if run_dir is None:  # next to the checkpoint's run, named after both
        run = restore.resolve().parent if its_run == Path() else its_run
        fresh = run.with_name(f"{run.name}-from-{restore.stem}")
        return (_numbered(fresh) if fresh.exists() else fresh), False
    if same:
        raise UsageError(
            f"--run-dir {run_dir}: holds the run that --restore {restore} belongs to; "
            "choose another, or restore its latest.safetensors to carry it on"
        )
    return Path(run_dir), False


def move_aside(path: Path) -> Path:
    """Rename a file or directory to path.1, path.2 ...; return the new path, or raise OSError."""
    aside = _numbered(path)
    path.rename(aside)
    return aside


def replace(path: Path, content: bytes | memoryview) -> None:
    """Write a whole file to disk, or leave the older one as it is and raise OSError."""
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
    """Replace a text file as a whole; raise OSError."""
    replace(path, text.encode("utf-8", errors="replace"))


def _holds_run(path: Path) -> bool:
    return any((path / name).exists() for name in (LATEST, BEST, PROGRESS, SETTINGS))


def _numbered(path: Path) -> Path:
    """Return the first of path.1, path.2 and so on that does not exist."""
    paths = (path.with_name(f"{path.name}.{number}") for number in itertools.count(1))
    return next(free for free in paths if not free.exists())
