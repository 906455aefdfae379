"""The master's end of --video-every: it saves what is to be recorded, and wakes who records it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from es import checkpoint as checkpoints
from es.checkpoint import Checkpoint
from es.errors import in_one_line
from es.monitor.helper import HelperProcess
from es.rundir import VIDEOS
from es.workers.interface import counted

MOST_WAITING = 20  # recording takes seconds, and an update may take none
LOG = "recorder.log"
SNAPSHOTS, RECORDINGS = ".update-*.pth", ".*.recording.*"


class VideoRecorder:
    """Has snapshots of the run in `directory` recorded, by the helper `module ENV_NAME`.

    It goes on with what an earlier process of the same run has left.
    """

    def __init__(
        self, directory: Path, module: str, env_name: str, warn: Callable[[str], None]
    ) -> None:
        self._folder, self._module, self._warn = directory / VIDEOS, module, warn
        self._folder.mkdir(exist_ok=True)
        self._log = self._folder / LOG
        self._log.unlink(missing_ok=True)
        arguments = [str(directory.resolve()), env_name]
        self._helper = HelperProcess(module, arguments, self._log)
        self._told = False
        if self.waiting():
            self._helper.wake()

    def record(self, checkpoint: Checkpoint) -> None:
        """Has an episode of the checkpoint's policy recorded; raises OSError."""
        if self.waiting() < MOST_WAITING:
            update = checkpoint.counters.update
            checkpoints.save(checkpoint, self._folder / f".update-{update}.pth")
            self._helper.wake()
        elif not self._told:
            self._told = True
            self._warn("too many episodes wait to be recorded (--video-every): videos are left out")

    def waiting(self) -> int:
        """How many snapshots are not recorded yet."""
        return len(list(self._folder.glob(SNAPSHOTS)))

    def close(self, patience: Callable[[], float]) -> None:
        """Waits for the last videos, at most for `patience()` seconds."""
        self._helper.close(patience)
        for leftover in self._folder.glob(RECORDINGS):  # where it was not waited for
            leftover.unlink(missing_ok=True)
        if (count := self.waiting()) and patience() > 0:
            self._warn(
                f"{self._folder}: {counted(count, 'episode')} could not be recorded "
                f"({self._reason()}): tried again when the run is carried on"
            )
        else:
            self._log.unlink(missing_ok=True)

    def _reason(self) -> str:
        words = self._log.read_text(errors="replace").strip() if self._log.exists() else ""
        if self._helper.ending:
            words = words or f"{self._module} has ended with status {self._helper.ending}"
        return in_one_line(words.rpartition("\n")[2] or "is the disk full?")
