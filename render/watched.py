"""An environment that shows its pictures to somebody: a window, a video."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import gymnasium
import numpy as np

from envs import make_env
from es.errors import UsageError

# What MuJoCo can draw with, without a display first: a graphics card, in software, on a display.
BACKENDS = ("egl", "osmesa", "glfw")
TRY_BACKEND = (
    "import importlib, sys;"
    "context = importlib.import_module(f'mujoco.{sys.argv[1]}').GLContext(64, 64);"
    "context.make_current();"
    "import mujoco;"
    "mujoco.MjrContext(mujoco.MjModel.from_xml_string('<mujoco/>'), 100)"
)


class Picture(NamedTuple):
    """What there is to see after a reset or a step. pixels: (height, width, 3) uint8.

    episode counts from 1; episode_return is that of the episode so far.
    """

    pixels: np.ndarray
    episode: int
    episode_return: float


class Viewer(Protocol):
    """Who is shown the pictures."""

    def show(self, picture: Picture) -> None:
        """Takes the next picture."""

    def close(self) -> None:
        """There are no more."""


class Watched(gymnasium.Wrapper):
    """Shows a viewer every picture of an environment that renders to arrays.

    Raises UsageError, naming `flag`, where there are no pictures.
    """

    def __init__(self, env: gymnasium.Env, viewer: Viewer, flag: str) -> None:
        super().__init__(env)
        self._viewer, self._flag = viewer, flag
        self._episode, self._return = 0, 0.0
        self._shape: tuple[int, ...] | None = None

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Starts an episode and shows its first picture."""
        outcome = super().reset(**kwargs)
        self._episode, self._return = self._episode + 1, 0.0
        self._show()
        return outcome

    def step(self, action: Any) -> Any:
        """Plays a step and shows it."""
        outcome = super().step(action)
        self._return += float(outcome[1])
        self._show()
        return outcome

    def close(self) -> None:
        """Closes the viewer and the environment."""
        self._viewer.close()
        super().close()

    def _show(self) -> None:
        try:
            pixels: Any = np.asarray(self.env.render(), np.uint8)
            if pixels.ndim != 3 or pixels.shape[2] != 3 or not pixels.size:
                raise ValueError(f"its pictures have the shape {pixels.shape}")
            self._shape = self._shape or pixels.shape
            if pixels.shape != self._shape:
                raise ValueError(f"its pictures change from {self._shape} to {pixels.shape}")
        except Exception as error:  # no graphics for the simulator, or no pictures at all
            words = " ".join(str(error).split())
            raise UsageError(
                f"{self._flag}: the environment cannot be shown ({words}); give --no-render"
            ) from error
        self._viewer.show(Picture(pixels, self._episode, self._return))


def make_drawn(environment: Mapping[str, Any], remedy: str) -> gymnasium.Env:
    """The described environment, made to be rendered.

    Raises UsageError, with the remedy, where it cannot be: some environments have no pictures.
    """
    # SDL asks Wayland first, whose library prints an error of its own without this folder.
    os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.gettempdir())
    try:
        env = make_env(environment, "rgb_array")
        if "mujoco" in sys.modules:
            choose_backend()
    except UsageError as error:
        raise UsageError(f"{error}; {remedy}") from error
    return env


def choose_backend() -> None:
    """Has MuJoCo draw with what works here, unless MUJOCO_GL says with what.

    Left to itself, it takes a display for granted. Raises UsageError where nothing works.
    """
    if sys.platform != "linux" or "MUJOCO_GL" in os.environ:
        return
    for backend in BACKENDS:
        # In a process of its own: one that does not work keeps others from being loaded.
        tried = subprocess.run(
            [sys.executable, "-c", TRY_BACKEND, backend], capture_output=True, check=False
        )
        if tried.returncode == 0:
            os.environ["MUJOCO_GL"] = backend
            return
    raise UsageError(
        "MuJoCo finds nothing to draw with here: install EGL or OSMesa (on Debian and Ubuntu: "
        "apt-get install libegl1 libgl1-mesa-dri)"
    )


def frames_per_second(env: gymnasium.Env, frame_skip: int = 1) -> float:
    """At how many of its steps a second an environment plays at its own speed.

    Atari's 60 frames are counted before some are skipped.
    """
    skipped = getattr(env.unwrapped, "_frameskip", None)
    if isinstance(skipped, int):
        return 60 / skipped
    return (env.metadata.get("render_fps") or 30) / frame_skip
