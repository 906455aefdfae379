"""Records a run's snapshots beside its training: the helper process of --video-every.

Run as `python -m recorder RUN_DIR ENV_NAME`. A snapshot is a checkpoint `videos/.update-<K>.pth`,
which is deleted once `videos/update-<K>.mp4` is there; what is left, by an interrupted run or on a
full disk, is tried again when the run is carried on.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from es.reports.films import RECORDINGS, SNAPSHOTS
from es.reports.helper import woken
from es.reports.tensorboard import EventFile
from es.runs.directory import VIDEOS

TRIED = ".tried.pth"
PREVIEW_WIDTH, PREVIEW_SPEED, PREVIEW_SECONDS = 240, 15.0, 20.0  # in TensorBoard


def main(run: Path, env_name: str) -> None:
    """Records whenever it is woken."""
    os.nice(19)  # the workers go first
    folder, begun = run / VIDEOS, set[Path]()
    events: EventFile | None = None
    for leftover in folder.glob(RECORDINGS):  # of a process that was killed
        leftover.unlink()
    for _ in woken():
        while found := sorted({*folder.glob(SNAPSHOTS)} - begun, key=_age):
            # Those that were begun before come last, since they may have ended the process.
            update = _age(found[0])[1]
            video = folder / f"update-{update}.mp4"
            snapshot = found[0].replace(folder / f".update-{update}{TRIED}")
            begun.add(snapshot)
            if not record(snapshot, video, env_name):
                continue
            snapshot.unlink()
            try:
                events = events or EventFile(folder)
                add_preview(events, video, update)
            except OSError as error:  # the video itself is there, and others wait
                print(f"error: {video}: is not shown by TensorBoard ({error})", file=sys.stderr)
    if events:
        events.close()


def record(snapshot: Path, video: Path, env_name: str) -> bool:
    """Makes a snapshot's video as `--test --video` does; whether that went well."""
    from es import main as program  # here, since it takes seconds

    files = ("--restore", str(snapshot), "--video", str(video))
    # What goes wrong is told on standard error.
    return program.main(["--test", "--silent", "--env-name", env_name, *files]) == 0


def add_preview(events: EventFile, video: Path, update: int) -> None:
    """Adds the video's beginning to what TensorBoard shows, which plays GIFs."""
    from es.rendering.video import convert

    gif = video.with_name(f".{video.stem}.recording.preview.gif")
    try:
        convert(video, gif, PREVIEW_WIDTH, PREVIEW_SPEED, PREVIEW_SECONDS)
        events.add_image("episode", gif.read_bytes(), update)
        events.flush()
    finally:
        gif.unlink(missing_ok=True)


def _age(snapshot: Path) -> tuple[bool, int]:
    """Whether it was begun before, and its update."""
    _, update, *tried = snapshot.name.strip(".").replace("-", ".").split(".")
    return tried[0] != "pth", int(update)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
