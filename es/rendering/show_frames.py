"""An environment that shows its pictures to somebody: a window, a video."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import gymnasium
import numpy as np

from es.errors import UsageError
from es.rendering.mujoco import CAMERA_CHOICES, Followed, choose_backend, travelling_body


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


class ShowFrames(gymnasium.Wrapper):
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


def make_drawn(
    make: Callable[[], gymnasium.Env], kwargs: Mapping[str, Any], remedy: str
) -> gymnasium.Env:
    """Return an environment whose pictures can be taken, and whose camera follows what travels.

    make: makes it with the render mode rgb_array. kwargs: its own arguments. Raise UsageError, with
    the remedy, where it cannot be made: some environments have no pictures.
    """
    # SDL asks Wayland first, whose library prints an error of its own without this folder.
    os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.gettempdir())
    try:
        env = make()
        if "mujoco" in sys.modules:
            choose_backend()
    except UsageError as error:
        raise UsageError(f"{error}; {remedy}") from error
    body = travelling_body(env)
    if body is None:
        return env
    return Followed(env, body, moves_camera=CAMERA_CHOICES.isdisjoint(kwargs))


def frames_per_second(env: gymnasium.Env, frame_skip: int = 1) -> float:
    """At how many of its steps a second an environment plays at its own speed.

    Atari's 60 frames are counted before some are skipped.
    """
    skipped = getattr(env.unwrapped, "_frameskip", None)
    if isinstance(skipped, int):
        return 60 / skipped
    return (env.metadata.get("render_fps") or 30) / frame_skip
