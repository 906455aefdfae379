"""Pictures of episodes: in a window, as videos, and as videos during a training."""

import contextlib
import importlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from es.checkpoint import Checkpoint, require_writable, save, writable
from es.envs import make_env
from es.errors import UsageError, summary_of
from es.reports import VIDEOS
from es.rollouts.processes import Helper, last_error_line

SMALLEST_SIDE, LARGEST_SIDE = 400, 1600  # pixels
CAPTION_HEIGHT = 28  # pixels, above the picture
FARTHER = 100  # how many times larger the floors of MuJoCo are drawn
BACKGROUND, INK = (32, 32, 32), (255, 255, 255)
GIF_WIDTH, GIF_SPEED = 320, 20.0  # pixels and pictures a second at most: GIFs grow large
WITHOUT_PICTURES = "to play it without pictures, give --no-render and no --video"


class ShowFrames(gymnasium.Wrapper):
    """Show a viewer every picture of an environment that renders to arrays.

    Raise UsageError, which names `flag`, if there are no pictures.
    """

    def __init__(self, env: gymnasium.Env, viewer: "Window | Video", flag: str) -> None:
        super().__init__(env)
        self._viewer, self._flag = viewer, flag
        self._episode, self._return = 0, 0.0

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Start an episode and show its first picture."""
        outcome = super().reset(**kwargs)
        self._episode, self._return = self._episode + 1, 0.0
        self._show()
        return outcome

    def step(self, action: Any) -> Any:
        """Play a step and show it."""
        outcome = super().step(action)
        self._return += np.asarray(outcome[1]).item()  # it may be an array of one number
        self._show()
        return outcome

    def close(self) -> None:
        """Close the viewer and the environment."""
        try:
            self._viewer.close()
        finally:
            super().close()

    def _show(self) -> None:
        pixels = draw(self.env, f"{self._flag}: ", WITHOUT_PICTURES)
        self._viewer.show(enlarged(pixels), f"episode {self._episode}   return {self._return:.2f}")


def draw(env: gymnasium.Env, prefix: str, remedy: str) -> np.ndarray:
    """Return the picture of an environment: (height, width, 3) uint8. Raise UsageError.

    prefix, remedy: the beginning and the end of the error.
    """
    try:
        picture: Any = env.render()
        pixels = np.asarray(picture)
        if pixels.ndim != 3 or pixels.shape[2] not in (3, 4) or not pixels.size:
            raise ValueError(f"its render() returned a {type(picture).__name__}, not a picture")
        return pixels[..., :3].astype(np.uint8)  # without transparency
    except Exception as error:  # no graphics for the simulator, or no pictures at all
        raise UsageError(
            f"{prefix}the environment cannot be drawn ({summary_of(error)}); {remedy}, or see "
            "docs/environments.md"
        ) from error


def make_drawn(environment: Mapping[str, Any], remedy: str) -> gymnasium.Env:
    """Return the described environment, with the render mode rgb_array.

    Raise UsageError, in one line with the remedy, if it cannot be made: some environments have no
    pictures.
    """
    # SDL tries Wayland first, whose library prints an error of its own without this folder.
    os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.gettempdir())
    try:
        env = make_env(environment, "rgb_array")
        for robot in (env.unwrapped, *vars(env.unwrapped).values()):  # a maze has another inside
            if hasattr(robot, "mujoco_renderer"):
                _prepare_mujoco(robot.mujoco_renderer)
    except UsageError as error:
        raise UsageError(f"{error.message}; {remedy}") from error
    return env


def require_drawable(environment: Mapping[str, Any]) -> None:
    """Raise UsageError unless the described environment can be recorded (--video-every)."""
    remedy = "remove --video-every, or give None"
    with contextlib.closing(make_drawn(environment, remedy)) as env:
        env.reset(seed=0)
        draw(env, "--video-every: ", remedy)


def _prepare_mujoco(renderer: Any) -> None:
    """Choose what MuJoCo draws with, follow the body, and make the floors larger.

    Raise UsageError if MuJoCo cannot draw here.
    """
    import mujoco

    # By default, MuJoCo assumes that there is a display.
    backend = os.environ.setdefault("MUJOCO_GL", "egl" if sys.platform == "linux" else "glfw")
    try:
        importlib.import_module(f"mujoco.{backend}").GLContext(64, 64).free()
    except Exception as error:
        raise UsageError(
            f"MuJoCo cannot draw with MUJOCO_GL={backend} ({summary_of(error)}). Install EGL (on "
            "Debian and Ubuntu: apt-get install libegl1 libgl1-mesa-dri), or set MUJOCO_GL to "
            "osmesa or glfw"
        ) from error
    model = renderer.model
    # Gymnasium 1.4 uses the model's own camera, which follows the body, only if it is named.
    if renderer.camera_id == -1:
        renderer.camera_id = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_CAMERA, "track")
    # Bodies collide with all of a plane anyway: its size (0: endless) is only for drawing.
    floors = (model.geom_type == mujoco.mjtGeom.mjGEOM_PLANE) & (model.geom_bodyid == 0)
    model.geom_size[floors, :2] *= FARTHER
    # Its squares keep their size, but where a material says that they do anyway (texuniform).
    finite = model.geom_matid[floors & (model.geom_size[:, 0] > 0)]
    squares = [each for each in finite if each >= 0 and not model.mat_texuniform[each]]
    model.mat_texrepeat[squares] *= FARTHER


def frames_per_second(env: gymnasium.Env, frame_skip: int) -> float:
    """Return how many steps an environment plays in a second at its own speed.

    Atari plays 60 frames in a second, of which each step skips some.
    """
    skipped = getattr(env.unwrapped, "_frameskip", None)
    if isinstance(skipped, int):
        return 60 / skipped
    return (env.metadata.get("render_fps") or 30) / frame_skip


class WindowClosed(Exception):  # noqa: N818 (no error)
    """The user closed the window."""


class Window:
    """A viewer on the screen, at the environment's own speed.

    Raise UsageError if there is no display.
    """

    def __init__(self, title: str, frames_per_second: float) -> None:
        self._pygame, self._title = _open_display(), title
        self._screen: Any = None
        self._clock = self._pygame.time.Clock()
        self._frames_per_second = frames_per_second

    def show(self, pixels: np.ndarray, caption: str) -> None:
        """Show a picture, without the caption, for a frame's duration. Raise WindowClosed."""
        pygame = self._pygame
        surface = pygame.surfarray.make_surface(np.transpose(pixels, (1, 0, 2)))
        if self._screen is None:
            self._screen = pygame.display.set_mode(surface.get_size())
            pygame.display.set_caption(self._title)
        self._screen.blit(surface, (0, 0))
        pygame.display.flip()
        self._clock.tick(self._frames_per_second)
        if any(event.type == pygame.QUIT for event in pygame.event.get()):
            raise WindowClosed

    def close(self) -> None:
        """Close the window."""
        self._pygame.display.quit()


def enlarged(pixels: np.ndarray) -> np.ndarray:
    """Return a picture that is easy to see: small ones, such as Atari's, are enlarged."""
    shortest, longest = min(pixels.shape[:2]), max(pixels.shape[:2])
    factor = max(1, min(-(-SMALLEST_SIDE // shortest), LARGEST_SIDE // longest))
    return pixels.repeat(factor, axis=0).repeat(factor, axis=1)


def flags_to_watch(*, drawable: bool) -> tuple[str, ...]:
    """Return the flags that show a policy: in a window, or as a video if there is no display.

    drawable: whether its environment can be drawn. If not, the flags play it without pictures.
    """
    if not drawable:
        return ("--test", "--no-render")
    return ("--test",) if _may_have_display() else ("--test", "--video", "policy.mp4")


def _may_have_display() -> bool:
    variables = ("SDL_VIDEODRIVER", "DISPLAY", "WAYLAND_DISPLAY")
    return sys.platform != "linux" or any(os.environ.get(name) for name in variables)


def _open_display() -> Any:
    """Return the module pygame with its display opened. Raise UsageError if there is none."""
    no_display = UsageError(
        "--test: there is no display here to open a window on; give --video FILE.mp4 or --no-render"
    )
    if not _may_have_display():
        raise no_display  # SDL would print an error of its own
    import pygame

    try:
        pygame.display.init()
    except pygame.error:
        raise no_display from None
    invisible = pygame.display.get_driver() in ("offscreen", "dummy")  # SDL's last resorts
    if invisible and not os.environ.get("SDL_VIDEODRIVER"):
        raise no_display
    return pygame


class Video:
    """Record episodes with ffmpeg while they are played. Each picture is below a caption.

    path: the .mp4 or .gif file. The recording is beside it until `save`. title: the beginning of
    the caption. Raise UsageError if the file cannot be written.
    """

    def __init__(self, path: Path, frames_per_second: float, title: str) -> None:
        self.path, self._speed, self._title = path, frames_per_second, title
        self.frames = 0
        self._recording = path.with_name(f".{path.stem}.recording{path.suffix}")
        self._process: subprocess.Popen[bytes] | None = None
        require_writable(path, "--video")

    @property
    def seconds(self) -> float:
        """Return the length of the video in seconds."""
        return self.frames / self._speed

    def show(self, pixels: np.ndarray, caption: str) -> None:
        """Add a frame. Raise UsageError if ffmpeg has failed."""
        import cv2

        height, width, _ = pixels.shape
        margins = CAPTION_HEIGHT, height % 2, 0, width % 2  # the codec wants even numbers
        canvas = cv2.copyMakeBorder(pixels, *margins, cv2.BORDER_CONSTANT, value=BACKGROUND)
        words = f"{self._title}   {caption}"
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
        """Finish the recording. Raise UsageError with ffmpeg's reason if it has failed."""
        process, self._process = self._process, None
        if process is None:
            return
        process.communicate()
        line = last_error_line(self._errors)
        if process.returncode:
            self.discard()
            raise UsageError(f"--video {self.path}: cannot be written (ffmpeg: {line})")

    def save(self, path: Path) -> None:
        """Give the finished recording this name."""
        with writable(path, "--video"):
            self._recording.replace(path)

    def discard(self) -> None:
        """Delete the recording."""
        self.close()
        self._recording.unlink(missing_ok=True)

    def _start(self, size: str) -> subprocess.Popen[bytes]:
        import imageio_ffmpeg

        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the process)
        frames = f"-f rawvideo -pix_fmt rgb24 -s {size} -r {self._speed} -i -".split()
        if self.path.suffix.lower() == ".gif":
            speed = min(self._speed, GIF_SPEED)
            scale = f"scale='min({GIF_WIDTH},iw)':-2:flags=lanczos"
            # A palette for each frame: one for all would have all frames wait in memory.
            palettes = "split[a][b];[a]palettegen=stats_mode=single[p];[b][p]paletteuse=new=1"
            codec = ["-vf", f"fps={speed:.4f},{scale},{palettes}", "-loop", "0"]
        else:
            codec = ["-c:v", "libx264", "-crf", "20", "-pix_fmt", "yuv420p"]
            codec += ["-movflags", "+faststart"]
        ffmpeg = [imageio_ffmpeg.get_ffmpeg_exe(), "-y", "-loglevel", "error"]
        # Not imageio_ffmpeg.write_frames: it ignores ffmpeg's exit status, so a full disk looks
        # like success, and it kills ffmpeg at an interrupt, so the recording is lost.
        return subprocess.Popen(
            [*ffmpeg, *frames, *codec, str(self._recording.resolve())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            start_new_session=True,  # Ctrl-C is for the program, which then closes the video
        )


class Recorder:
    """Record episodes of a run's policy (--video-every), one at a time, in a process beside it.

    A checkpoint that comes while another is being recorded is skipped, unless it is the last one.

    path: the run's directory. flags: `Config.flags_to_restore`.
    """

    def __init__(
        self, path: Path, flags: list[str], say: Callable[[str], None], warn: Callable[[str], None]
    ) -> None:
        self._folder, self._flags = path.resolve() / VIDEOS, flags
        self._say, self._warn = say, warn
        self._snapshot = self._folder / ".snapshot.safetensors"
        self._helper: Helper | None = None
        self._waiting: Checkpoint | None = None
        self._warned = False
        self._folder.mkdir(exist_ok=True)

    def record(self, checkpoint: Checkpoint) -> None:
        """Record an episode of the checkpoint's policy; let it wait while another is recorded."""
        self._waiting = checkpoint
        self._continue()

    def close(self, hurried: Callable[[], bool]) -> None:
        """Wait for the last video. hurried: returns whether the user does not want to."""
        if not hurried() and self._continue():
            self._say("Recording the last video; Ctrl-C leaves it out ...")
        while not hurried() and self._continue():
            time.sleep(0.02)
        if self._helper:
            self._helper.end()
        for unfinished in self._folder.glob(".*"):
            unfinished.unlink(missing_ok=True)

    def _continue(self) -> bool:
        """Record what waits, if the process has finished. Return whether one is at work."""
        if self._helper and self._helper.poll() is not None:
            if failure := self._helper.end():
                self._warn_once(failure)
            self._helper = None
        if self._waiting and not self._helper:
            video = self._folder / f"update-{self._waiting.counters.update}.mp4"
            words = ("--test", "--silent", "--restore", str(self._snapshot), "--video", str(video))
            try:
                save(self._waiting, self._snapshot)
                self._helper = Helper("es", *words, *self._flags)
            except OSError as error:  # such as a full disk
                self._warn_once(str(error))
            self._waiting = None
        return self._helper is not None

    def _warn_once(self, failure: str) -> None:
        if not self._warned:
            self._warned = True
            self._warn(f"{self._folder}: an episode could not be recorded ({failure})")
