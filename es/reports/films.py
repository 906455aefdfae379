"""Videos of a run's policy (--video-every), recorded one after the other beside the training."""

import re
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue

from es import checkpoint as checkpoints
from es.checkpoint import Checkpoint
from es.reports.one_shot import LOWEST, USUAL, Idle, OneShot
from es.reports.terminal import Terminal
from es.rollouts.interface import counted
from es.run import VIDEOS, RunDir

PROGRAM, PREVIEW = "es", "es.reports.preview"  # modules that are run
MOST_WAITING = 20  # recording takes seconds, and an update may take none
IDLE_SECONDS = 60.0  # after which the run no longer waits for a process that does nothing
SNAPSHOTS, RECORDINGS = ".update-*-frames-*.safetensors", ".*.recording.*"


class VideoRecorder:
    """Record an episode of each snapshot of a run, by `main.py --test --video` in a thread.

    A snapshot is a checkpoint `videos/.update-<K>-frames-<F>.safetensors`, which is deleted once
    its video `update-<K>.mp4` is there. Snapshots that an earlier process of the run has left are
    recorded first. If too many wait, every other one is left out. Those that an interrupt or a full
    disk leaves are recorded when the run is carried on. After two that have failed alike, no other
    is tried. flags: `Config.flags_to_restore`.
    """

    def __init__(self, directory: RunDir, flags: list[str], console: Terminal) -> None:
        self._directory, self._console = directory, console
        self._flags = flags
        self._folder = directory.path / VIDEOS
        self._folder.mkdir(exist_ok=True)
        self._delete_recordings()
        self._process: OneShot | None = None
        self._slow: OneShot | None = None
        self._stuck: OneShot | None = None
        self._failure = self._words = self._not_shown = ""
        self._told = self._hurried = self._hopeless = False
        self._priority = LOWEST
        self._queue: SimpleQueue[Path | None] = SimpleQueue()
        self._earlier = sorted(self._folder.glob(SNAPSHOTS), key=_counts)
        for snapshot in self._earlier:
            self._queue.put(snapshot)
        self._thread = threading.Thread(target=self._work, name="videos", daemon=True)
        self._thread.start()

    def record(self, checkpoint: Checkpoint) -> None:
        """Have an episode of the checkpoint's policy recorded; raise OSError."""
        self._directory.check()  # another run may have taken its place
        pending = sorted({*self._folder.glob(SNAPSHOTS)} - {*self._earlier}, key=_counts)
        if len(pending) >= MOST_WAITING:
            for every_other in pending[2::2]:  # the first is being recorded, or soon the second
                every_other.unlink(missing_ok=True)
            if not self._told:
                self._told = True
                self._console.warn(
                    "too many episodes wait to be recorded (--video-every): some are left out"
                )
        update, _, frames, *_ = checkpoint.counters
        snapshot = self._folder / f".update-{update}-frames-{frames}.safetensors"
        checkpoints.save(checkpoint, snapshot)
        self._queue.put(snapshot)

    def close(self, hurried: Callable[[], bool]) -> None:
        """Wait for all videos, unless `hurried` returns that the user does not want to.

        They are recorded at the usual priority then. What does nothing for IDLE_SECONDS is ended.
        """
        if (count := self._waiting()) and not hurried():
            self._console.say(f"Recording the last videos ({count}); Ctrl-C leaves them ...")
        self._priority = USUAL
        self._queue.put(None)
        idle = Idle()
        while self._thread.is_alive():
            process = self._process
            self._hurried = hurried()
            if process:
                if not process.hasten():  # the video is recorded anew
                    self._slow = process
                elif idle.seconds(process) >= IDLE_SECONDS:
                    self._stuck = process
                if self._hurried or process in (self._slow, self._stuck):
                    process.kill()
            self._thread.join(0.02)
        count = self._waiting()
        if count and hurried():
            self._console.say(f"Videos left to be recorded when the run is carried on: {count}")
        elif count:
            self._console.warn(
                f"{self._folder}: {counted(count, 'episode')} could not be recorded "
                f"({self._failure}): tried again when the run is carried on"
            )
        elif self._not_shown:
            self._console.warn(self._not_shown)
        with suppress(OSError):
            self._directory.check()
            self._delete_recordings()

    def _waiting(self) -> int:
        with suppress(OSError):
            self._directory.check()
            return waiting(self._directory.path)
        return 0

    def _delete_recordings(self) -> None:
        for unfinished in self._folder.glob(RECORDINGS):
            unfinished.unlink(missing_ok=True)

    def _work(self) -> None:
        while snapshot := self._queue.get():
            with suppress(OSError):
                self._directory.check()  # what lies there now may be another run's
                self._record(snapshot)

    def _record(self, snapshot: Path) -> None:
        if self._hopeless or not snapshot.exists():  # it was left out
            return
        update, frames = _counts(snapshot)
        video = self._folder.resolve() / f"update-{update}.mp4"
        files = ("--restore", str(snapshot.resolve()), "--video", str(video))
        failure = self._run(PROGRAM, "--test", "--silent", *self._flags, *files)
        words = failure.replace(str(video), "").replace(str(snapshot.resolve()), "")
        self._hopeless = words != "" and words == self._words
        self._words = words
        if failure:
            self._failure = failure
            return
        snapshot.unlink()
        if failure := self._run(PREVIEW, str(video), str(frames)):
            self._not_shown = f"{video}: is not shown by TensorBoard ({failure})"

    def _run(self, module: str, *arguments: str) -> str:
        """Run a module to its end; return the last line of its errors if it failed."""
        if self._hurried:
            return "interrupted"
        process = None
        try:
            process = self._process = OneShot(priority=self._priority)
            process.run(module, *arguments)
            failure = process.failure()
        except OSError as error:  # such as a full disk
            failure = str(error)
        finally:
            if process:
                process.close()
        if failure and process and process is self._slow:
            return self._run(module, *arguments)
        if process and process is self._stuck:
            return f"it did nothing for {IDLE_SECONDS:g} seconds"
        return failure


def waiting(run_dir: Path) -> int:
    """Return how many snapshots of a run are not recorded yet."""
    return len(list((run_dir / VIDEOS).glob(SNAPSHOTS)))


def _counts(snapshot: Path) -> tuple[int, int]:
    """Return a snapshot's update and frames."""
    update, frames = map(int, re.findall(r"\d+", snapshot.name))
    return update, frames
