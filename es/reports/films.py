"""The master's end of --video-every: it saves what is to be recorded, and wakes who records it."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from es.errors import in_one_line
from es.reports.helper import HelperProcess
from es.reports.terminal import Console
from es.rollouts.interface import counted
from es.runs import checkpoint as checkpoints
from es.runs.checkpoint import Checkpoint
from es.runs.directory import VIDEOS, RunDir

MOST_WAITING = 20  # recording takes seconds, and an update may take none
LOG = "recorder.log"
SNAPSHOTS, RECORDINGS = ".update-*.pth", ".*.recording.*"


class VideoRecorder:
    """Has snapshots of the run in `directory` recorded, by the helper `module ENV_NAME`.

    It goes on with what an earlier process of the same run has left.
    """

    def __init__(
        self, directory: RunDir, module: str, env_name: str, warn: Callable[[str], None]
    ) -> None:
        self._directory, self._module, self._warn = directory, module, warn
        self._folder = directory.path / VIDEOS
        self._folder.mkdir(exist_ok=True)
        self._log = self._folder / LOG
        self._log.unlink(missing_ok=True)
        arguments = [str(directory.path.resolve()), env_name]
        self._helper = HelperProcess(module, arguments, self._log)
        self._told = False
        if self.waiting():
            self._helper.wake()

    def record(self, checkpoint: Checkpoint) -> None:
        """Has an episode of the checkpoint's policy recorded; raises OSError."""
        self._directory.check()  # another run may have taken its place
        if self.waiting() < MOST_WAITING:
            update = checkpoint.counters.update
            checkpoints.save(checkpoint, self._folder / f".update-{update}.pth")
            self._helper.wake()
        elif not self._told:
            self._told = True
            self._warn("too many episodes wait to be recorded (--video-every): videos are left out")

    def waiting(self) -> int:
        """How many snapshots are not recorded yet."""
        with suppress(OSError):
            self._directory.check()
            return waiting(self._directory.path)
        return 0

    def close(self, patience: Callable[[], float]) -> None:
        """Waits for the last videos, at most for `patience()` seconds."""
        self._helper.close(patience)
        with suppress(OSError):  # what lies there now may be another run's
            self._directory.check()
            self._clean_up(patience)

    def _clean_up(self, patience: Callable[[], float]) -> None:
        for leftover in self._folder.glob(RECORDINGS):  # where it was not waited for
            leftover.unlink(missing_ok=True)
        if (count := self.waiting()) and patience() > 0:
            self._warn(
                f"{self._folder}: {counted(count, 'episode')} could not be recorded "
                f"({self._reason()}): tried again when the run is carried on"
            )
            return
        if self._last_words().startswith("error: "):  # of a video that is there, but not shown
            self._warn(self._last_words().removeprefix("error: "))
        self._log.unlink(missing_ok=True)

    def _reason(self) -> str:
        words = self._last_words()
        if self._helper.ending:
            words = words or f"{self._module} has ended with status {self._helper.ending}"
        return words or "is the disk full?"

    def _last_words(self) -> str:
        words = self._log.read_text(errors="replace").strip() if self._log.exists() else ""
        return in_one_line(words.rpartition("\n")[2])


def waiting(run_dir: Path) -> int:
    """How many snapshots of a run are not recorded yet."""
    return len(list((run_dir / VIDEOS).glob(SNAPSHOTS)))


def finish(recorder: VideoRecorder, console: Console, hurried: Callable[[], bool]) -> None:
    """Waits for all videos, unless the user does not want to."""
    if (count := recorder.waiting()) and not hurried():
        console.say(f"Recording the last videos ({count}); Ctrl-C leaves them ...")
    recorder.close(lambda: 0.0 if hurried() else math.inf)
    if hurried() and (count := recorder.waiting()):
        console.say(f"Videos left to be recorded when the run is carried on: {count}")
