"""Videos of episodes, encoded by ffmpeg while they are played."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np

from es.errors import UsageError
from es.rendering.show_frames import Picture
from es.rendering.window import enlargement
from es.runs.directory import writable

CAPTION_HEIGHT = 28  # pixels, above the picture
BACKGROUND, INK = (32, 32, 32), (255, 255, 255)
GIF_WIDTH, GIF_SPEED = 320, 20.0  # pixels and pictures a second at most: GIFs grow large


class Video:
    """Record an episode: each picture becomes a frame, below a caption.

    path: the .mp4 or .gif file; the recording lies beside it until `save`. title: the beginning of
    the caption. Raises UsageError if the file cannot be written.
    """

    def __init__(self, path: Path, frames_per_second: float, title: str) -> None:
        self.path, self._speed, self._title = path, frames_per_second, title
        self.frames = 0
        self._complaint = f"--video {path}: cannot be written"
        self._recording = path.with_name(f".{path.stem}.recording.mp4")
        self._canvas: np.ndarray | None = None
        self._process: subprocess.Popen[bytes] | None = None
        with writable(path, "--video"):
            if path.is_dir():
                raise IsADirectoryError(None, "it is a directory")
            path.parent.mkdir(parents=True, exist_ok=True)
            self._recording.touch()  # before anything is played

    @property
    def seconds(self) -> float:
        """Return how long it plays."""
        return self.frames / self._speed

    def show(self, picture: Picture) -> None:
        """Add a frame; raise UsageError if ffmpeg has failed."""
        pixels = picture.pixels
        factor = enlargement(pixels.shape[:2])
        pixels = pixels.repeat(factor, axis=0).repeat(factor, axis=1)
        height, width, _ = pixels.shape
        if self._canvas is None:
            # The codec wants even numbers.
            size = (CAPTION_HEIGHT + height + height % 2, width + width % 2, 3)
            self._canvas = np.zeros(size, np.uint8)
            self._process = self._start()
        canvas = self._canvas
        canvas[:CAPTION_HEIGHT] = BACKGROUND
        canvas[CAPTION_HEIGHT : CAPTION_HEIGHT + height, :width] = pixels
        words = f"{self._title}   episode {picture.episode}   return {picture.episode_return:.2f}"
        cv2.putText(
            canvas, words, (8, 19), cv2.FONT_HERSHEY_SIMPLEX, 0.45, INK, 1, cv2.LINE_AA
        )  # fmt: skip
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(canvas.data)
        except OSError:  # ffmpeg has ended
            self.close()
        self.frames += 1

    def close(self) -> None:
        """Finish recording; raise UsageError with ffmpeg's last words if it has failed."""
        process, self._process = self._process, None
        if process is None:
            return
        process.communicate()
        self._errors.seek(0)
        with self._errors as file:
            words = _last_line(file.read().decode(errors="replace"))
        if process.returncode:
            self.discard()
            raise UsageError(f"{self._complaint} (ffmpeg: {words})")

    def save(self, path: Path) -> None:
        """Replace this file by the video; after an interrupt it can still be saved elsewhere."""
        try:
            if path.suffix.lower() == ".gif":
                convert(self._recording, path, GIF_WIDTH, min(self._speed, GIF_SPEED))
            else:
                self._recording.replace(path)
        except OSError as error:
            self.discard()
            raise UsageError(f"{self._complaint} ({error.strerror or error})") from error
        self.discard()

    def discard(self) -> None:
        """Delete the recording."""
        self.close()
        self._recording.unlink(missing_ok=True)

    def _start(self) -> subprocess.Popen[bytes]:
        assert self._canvas is not None
        height, width, _ = self._canvas.shape
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the process)
        # Not imageio_ffmpeg.write_frames: it ignores ffmpeg's exit status, so a full disk looks
        # like success, and it kills ffmpeg at an interrupt, so the recording is lost.
        return subprocess.Popen(
            [
                *_ffmpeg(), "-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}",
                "-r", str(self._speed), "-i", "-", "-c:v", "libx264", "-crf", "20",
                "-pix_fmt", "yuv420p", "-metadata", f"title={self._title}",
                "-movflags", "+faststart", str(self._recording.resolve()),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            start_new_session=True,  # Ctrl-C is for the program, which then closes the video
        )  # fmt: skip


def convert(
    video: Path, gif: Path, width: int, frames_per_second: float, seconds: float | None = None
) -> None:
    """Make an animated GIF of a video; raise OSError.

    width: in pixels, at most. seconds: of the video's beginning; None: all of it.
    """
    picked = f"fps={frames_per_second:.4f},scale='min({width},iw)':-2:flags=lanczos"
    source = [*(["-t", str(seconds)] if seconds else []), "-i", str(video.resolve())]
    made = gif.resolve().with_name(f".{gif.stem}.recording.gif")
    palette = made.with_suffix(".png")
    as_it_is = ["-f", "image2", "-pattern_type", "none"]  # no number is to be put into its name
    try:
        # The palette first, then the pictures: at once, all would have to fit into memory.
        _run([*source, "-vf", f"{picked},palettegen", "-update", "1", str(palette)])
        both = f"{picked}[frames];[frames][1:v]paletteuse=dither=none"
        pictures = [*source, *as_it_is, "-i", str(palette)]
        _run([*pictures, "-lavfi", both, "-loop", "0", str(made)])
        made.replace(gif)
    finally:
        palette.unlink(missing_ok=True)
        made.unlink(missing_ok=True)


def _run(arguments: Sequence[str]) -> None:
    done = subprocess.run(
        [*_ffmpeg(), *arguments], capture_output=True, text=True, check=False,
        start_new_session=True,
    )  # fmt: skip
    if done.returncode:
        raise OSError(f"ffmpeg: {_last_line(done.stderr)}")


def _last_line(errors: str) -> str:
    """Return ffmpeg's last words, without the name and the address of the part that says them."""
    line = errors.strip().rpartition("\n")[2]
    return re.sub(r"^\[[^\]]* @ [^\]]*\] ", "", line) or "no reason given"


def _ffmpeg() -> list[str]:
    """Return the program with options to overwrite files and to print only errors."""
    import imageio_ffmpeg

    return [imageio_ffmpeg.get_ffmpeg_exe(), "-y", "-nostdin", "-loglevel", "error"]
