"""A file that grows for as long as a run does, whatever the disk does meanwhile."""

from __future__ import annotations

from pathlib import Path

from es.runs.directory import require_same


class GrowingFile:
    """A file at whose end is written. What the disk did not take waits, and goes first next time.

    So nothing is lost, doubled or torn when a write stops half-way.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._file = path, path.open("ab", buffering=0)
        self._waiting = bytearray()

    def write(self, data: bytes) -> None:
        """Has the data written by the next `flush`."""
        self._waiting += data

    def flush(self) -> None:
        """Writes what waits, so that a reader sees it; raises OSError."""
        require_same(self._file.fileno(), self._path)
        while self._waiting:
            del self._waiting[: self._file.write(self._waiting)]

    def close(self) -> None:
        """Closes the file, without what waits."""
        self._file.close()
