"""Videos of episodes, encoded by ffmpeg while they are played."""

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
from es.run import writable

CAPTION_HEIGHT = 28  # pixels, above the picture
BACKGROUND, INK = (32, 32, 32), (255, 255, 255)
GIF_WIDTH, GIF_SPEED = 320, 20.0  # pixels and pictures a second at most: GIFs grow large


class Video:
    """Record an episode: each picture becomes a frame, below a caption.

    path: the .mp4 or .gif file; the recording is beside it until `save`. title: the beginning of
    the caption. Raise UsageError if the file cannot be written.
    """

    def __init__(self, path: Path, frames_per_second: float, title: str) -> None:
        self.path, self._speed, self._title = path, frames_per_second, title
        self.frames = 0
        self._complaint = f"--video {path}: cannot be written"
        self._recording = path.with_name(f".{path.stem}.recording.mp4")
        self._process: subprocess.Popen[bytes] | None = None
        with writable(path, "--video"):
            if path.is_dir():
                raise IsADirectoryError(None, "it is a directory")
            path.parent.mkdir(parents=True, exist_ok=True)
            self._recording.touch()  # to fail before anything is played

    @property
    def seconds(self) -> float:
        """Return the length of the video in seconds."""
        return self.frames / self._speed

    def show(self, picture: Picture) -> None:
        """Add a frame; raise UsageError if ffmpeg has failed."""
        factor = enlargement(picture.pixels.shape[:2])
        pixels = picture.pixels.repeat(factor, axis=0).repeat(factor, axis=1)
        height, width, _ = pixels.shape
        # The codec wants even numbers.
        canvas = np.zeros((CAPTION_HEIGHT + height + height % 2, width + width % 2, 3), np.uint8)
        canvas[:CAPTION_HEIGHT] = BACKGROUND
        canvas[CAPTION_HEIGHT : CAPTION_HEIGHT + height, :width] = pixels
        words = f"{self._title}   episode {picture.episode}   return {picture.episode_return:.2f}"
        cv2.putText(canvas, words, (8, 19), cv2.FONT_HERSHEY_SIMPLEX, 0.45, INK, 1, cv2.LINE_AA)
        if self._process is None:
            self._process = self._start(f"{canvas.shape[1]}x{canvas.shape[0]}")
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(canvas.data)
        except OSError:  # ffmpeg has ended
            self.close()
        self.frames += 1

    def close(self) -> None:
        """Finish the recording; raise UsageError with ffmpeg's reason if it has failed."""
        process, self._process = self._process, None
        if process is None:
            return
        process.communicate()
        self._errors.seek(0)
        with self._errors as file:
            reason = _last_line(file.read().decode(errors="replace"))
        if process.returncode:
            self.discard()
            raise UsageError(f"{self._complaint} (ffmpeg: {reason})")

    def save(self, path: Path) -> None:
        """Write the video to this file; after an interrupt it can still be saved elsewhere."""
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

    def _start(self, size: str) -> subprocess.Popen[bytes]:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the process)
        frames = f"-f rawvideo -pix_fmt rgb24 -s {size} -r {self._speed} -i -".split()
        codec = ["-c:v", "libx264", "-crf", "20", "-pix_fmt", "yuv420p", "-movflags", "+faststart"]
        title = ["-metadata", f"title={self._title}"]
        # Not imageio_ffmpeg.write_frames: it ignores ffmpeg's exit status, so a full disk looks
        # like success, and it kills ffmpeg at an interrupt, so the recording is lost.
        return subprocess.Popen(
            [*_ffmpeg(), *frames, *codec, *title, str(self._recording.resolve())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            start_new_session=True,  # Ctrl-C is for the program, which then closes the video
        )


def convert(
    video: Path, gif: Path, width: int, frames_per_second: float, seconds: float | None = None
) -> None:
    """Make an animated GIF of a video; raise OSError.

    width: the largest, in pixels. seconds: how much of the beginning; None: all of the video.
    """
    picked = f"fps={frames_per_second:.4f},scale='min({width},iw)':-2:flags=lanczos"
    source = ["-i", str(video.resolve())]
    if seconds:
        source = ["-t", str(seconds), *source]
    made = gif.resolve().with_name(f".{gif.stem}.recording.gif")
    palette = made.with_suffix(".png")
    one_image = ["-f", "image2", "-pattern_type", "none"]  # a % in its name is not a pattern
    try:
        # First the palette, then the frames: in one pass, all frames would have to fit into memory.
        _run([*source, "-vf", f"{picked},palettegen", "-update", "1", str(palette)])
        both = f"{picked}[frames];[frames][1:v]paletteuse=dither=none"
        inputs = [*source, *one_image, "-i", str(palette)]
        _run([*inputs, "-lavfi", both, "-loop", "0", str(made)])
        made.replace(gif)
    finally:
        palette.unlink(missing_ok=True)
        made.unlink(missing_ok=True)


def _run(arguments: Sequence[str]) -> None:
    command = [*_ffmpeg(), *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, start_new_session=True
    )
    if done.returncode:
        raise OSError(f"ffmpeg: {_last_line(done.stderr)}")


def _last_line(errors: str) -> str:
    """Return ffmpeg's last line, without the name and the address of the part that wrote it."""
    line = errors.strip().rpartition("\n")[2]
    return re.sub(r"^\[[^\]]* @ [^\]]*\] ", "", line) or "no reason given"


def _ffmpeg() -> list[str]:
    import imageio_ffmpeg

    return [imageio_ffmpeg.get_ffmpeg_exe(), "-y", "-nostdin", "-loglevel", "error"]
