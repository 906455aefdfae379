"""Records a run's snapshots beside its training: the helper process of --video-every.

Run as `python -m recorder RUN_DIR ENV_NAME`. A snapshot is a checkpoint `videos/.update-<K>.pth`,
which is deleted once `videos/update-<K>.mp4` is there; what an interrupted run has left is recorded
when it is carried on.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from es.monitor.events import EventFile
from es.monitor.helper import woken
from es.rundir import VIDEOS

PREVIEW_WIDTH, PREVIEW_SPEED, PREVIEW_SECONDS = 240, 15.0, 20.0  # in TensorBoard


def main(run: Path, env_name: str) -> None:
    """Records whenever it is woken."""
    os.nice(19)  # the workers go first
    folder, events = run / VIDEOS, None
    for leftover in folder.glob(".*.recording.*"):  # of a process that was killed
        leftover.unlink()
    for _ in woken():
        while found := sorted(folder.glob(".update-*.pth"), key=_update):
            snapshot, update = found[0], _update(found[0])
            if record(snapshot, env_name):
                events = events or EventFile(folder, update - 1)
                add_preview(events, snapshot.with_name(f"update-{update}.mp4"), update)
            snapshot.unlink()


def record(snapshot: Path, env_name: str) -> bool:
    """Makes a snapshot's video as `--test --video` does; whether that went well."""
    import main as program  # here, since it takes seconds

    video = snapshot.with_name(f"{snapshot.stem[1:]}.mp4")
    files = ("--restore", str(snapshot), "--video", str(video))
    # What goes wrong is told on standard error.
    return program.main(["--test", "--silent", "--env-name", env_name, *files]) == 0


def add_preview(events: EventFile, video: Path, update: int) -> None:
    """Adds the video's beginning to what TensorBoard shows, which plays GIFs."""
    from render.video import convert

    gif = video.with_name(f".{video.stem}.preview.gif")
    try:
        convert(video, gif, PREVIEW_WIDTH, PREVIEW_SPEED, PREVIEW_SECONDS)
        events.add_image("episode", gif.read_bytes(), update)
        events.flush()
    finally:
        gif.unlink(missing_ok=True)


def _update(snapshot: Path) -> int:
    return int(snapshot.stem.rpartition("-")[2])


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
