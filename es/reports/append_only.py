"""A file that only grows, and that a full disk neither tears nor leaves with gaps."""

from collections.abc import Callable
from io import FileIO
from pathlib import Path
from typing import NamedTuple

from es.run import require_same


class Place(NamedTuple):
    """The directory that files are written to, as a run sees it.

    check: raises OSError if the directory at `path` is no longer the run's. warn: is told what goes
    wrong.
    """

    path: Path
    check: Callable[[], None] = lambda: None
    warn: Callable[[str], None] = lambda text: None


class AppendOnlyFile:
    """Append bytes to a file; bytes that the disk refuses wait for the next `flush`.

    header: what the file begins with. The file is made when there is something to write, and again
    if somebody has deleted it.
    """

    def __init__(self, place: Place, name: str, header: bytes = b"") -> None:
        self._place, self._path, self._header = place, place.path / name, header
        self._file: FileIO | None = None
        self._waiting = bytearray()

    def write(self, data: bytes) -> None:
        """Keep the data for the next `flush`."""
        self._waiting += data

    def flush(self) -> None:
        """Write all waiting data; raise OSError if the disk refuses some of it."""
        if self._file:
            self._let_go_unless_there(self._file)
        if self._waiting and not self._file:
            self._place.check()
            self._file = self._path.open("ab", buffering=0)
            if not self._file.tell():
                self._waiting[:0] = self._header
        while self._waiting and self._file:
            del self._waiting[: self._file.write(self._waiting)]

    def close(self) -> None:
        """Close the file; data that is still waiting is lost."""
        if self._file:
            self._file.close()

    def _let_go_unless_there(self, file: FileIO) -> None:
        try:
            require_same(file.fileno(), self._path)
        except OSError as error:
            self._place.check()  # unless the whole directory is another's
            self._place.warn(f"{self._path.name}: {error.strerror}; it is made again from here on")
            file.close()
            self._file = None
