"""A file that only grows, and that a full disk neither tears nor leaves with gaps."""

from pathlib import Path

from es.runs.directory import require_same


class AppendOnlyFile:
    """Append bytes to a file; bytes that the disk refuses wait for the next `flush`."""

    def __init__(self, path: Path) -> None:
        self._path, self._file = path, path.open("ab", buffering=0)
        self._waiting = bytearray()

    def write(self, data: bytes) -> None:
        """Keep the data for the next `flush`."""
        self._waiting += data

    def flush(self) -> None:
        """Write all waiting data; raise OSError if the disk refuses some of it."""
        require_same(self._file.fileno(), self._path)
        while self._waiting:
            del self._waiting[: self._file.write(self._waiting)]

    def close(self) -> None:
        """Close the file; data that is still waiting is lost."""
        self._file.close()
