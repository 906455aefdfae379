"""Show the beginning of a video in TensorBoard, as an animated GIF.

Run as `python -m es.reports.preview VIDEO FRAMES`.
"""

import sys
from contextlib import closing
from pathlib import Path

from es.rendering.video import convert
from es.reports.append_only import Place
from es.reports.tensorboard import EventFile

WIDTH, FRAMES_PER_SECOND, SECONDS = 240, 15.0, 20.0


def show(video: Path, frames: int) -> None:
    """Add a preview to a new event file beside the video; raise OSError.

    frames: what the policy was trained for.
    """
    gif = video.with_name(f".{video.stem}.recording.preview.gif")
    try:
        convert(video, gif, WIDTH, FRAMES_PER_SECOND, SECONDS)
        with closing(EventFile(Place(video.parent))) as events:
            events.add_image("episode", gif.read_bytes(), frames)
            events.flush()
    finally:
        gif.unlink(missing_ok=True)


if __name__ == "__main__":
    show(Path(sys.argv[1]), int(sys.argv[2]))
