"""An environment that shows its pictures in a window or a video."""

import math
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any, NamedTuple, Protocol

import gymnasium
import numpy as np

from es.errors import UsageError, summary_of
from es.rendering.mujoco import CAMERA_CHOICES, Followed, choose_backend, travelling_body


class Picture(NamedTuple):
    """A picture after a reset or a step. pixels: (height, width, 3) uint8.

    episode: its number, from 1. episode_return: the return of the episode so far.
    """

    pixels: np.ndarray
    episode: int
    episode_return: float


class Viewer(Protocol):
    """A receiver of pictures."""

    def show(self, picture: Picture) -> None:
        """Show the next picture."""

    def close(self) -> None:
        """End: no more pictures come."""


class ShowFrames(gymnasium.Wrapper):
    """Show a viewer every picture of an environment that renders to arrays.

    Raise UsageError, which names `flag`, if there are no pictures.
    """

    def __init__(self, env: gymnasium.Env, viewer: Viewer, flag: str) -> None:
        super().__init__(env)
        self._viewer, self._flag = viewer, flag
        self._episode, self._return = 0, 0.0
        self._shape: tuple[int, ...] | None = None

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
        self._viewer.close()
        super().close()

    def _show(self) -> None:
        try:
            pixels = as_bytes(self.env.render())
            if pixels.ndim != 3 or pixels.shape[2] not in (3, 4) or not pixels.size:
                raise ValueError(f"its pictures have the shape {pixels.shape}")
            pixels = pixels[..., :3]  # without transparency
            self._shape = self._shape or pixels.shape
            if pixels.shape != self._shape:
                raise ValueError(f"its pictures change from {self._shape} to {pixels.shape}")
        except Exception as error:  # no graphics for the simulator, or no pictures at all
            what = f"the environment cannot be shown ({summary_of(error)})"
            raise UsageError(
                f"{self._flag}: {what}; give --no-render, or see docs/environments.md"
            ) from error
        self._viewer.show(Picture(pixels, self._episode, self._return))


def as_bytes(picture: Any) -> np.ndarray:
    """Return what an environment's render() has returned as bytes; raise ValueError.

    Pictures of floats may go up to 1 or up to 255; those of truth values go up to 1.
    """
    pixels = np.asarray(picture)
    if pixels.dtype.kind not in "buif":
        raise ValueError(f"its render() returned a {type(picture).__name__}, not a picture")
    if pixels.dtype.kind in "bf" and pixels.size and pixels.max() <= 1:
        pixels = pixels * 255
    return pixels.astype(np.uint8)


def make_drawn(
    make: Callable[[], gymnasium.Env], kwargs: Mapping[str, Any], remedy: str
) -> gymnasium.Env:
    """Return an environment that renders, with a camera that follows a travelling body.

    make: makes it with the render mode rgb_array. kwargs: its own arguments. Raise UsageError, in
    one line with the remedy, if it cannot be made: some environments have no pictures.
    """
    # SDL tries Wayland first, whose library prints an error of its own without this folder.
    os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.gettempdir())
    try:
        env = make()
        if "mujoco" in sys.modules:
            choose_backend()
    except UsageError as error:
        raise UsageError(f"{error.message}; {remedy}") from error
    speed: Any = env.metadata.get("render_fps")
    if speed is not None and not (isinstance(speed, Real) and 0 <= float(speed) < math.inf):
        env.close()
        name = env.spec.id if env.spec else type(env.unwrapped).__name__
        raise UsageError(
            f"--env-name {name}: its metadata's render_fps is {speed!r}, and no number; {remedy}"
        )
    body = travelling_body(env)
    if body is None:
        return env
    return Followed(env, body, moves_camera=CAMERA_CHOICES.isdisjoint(kwargs))


def frames_per_second(env: gymnasium.Env, frame_skip: int = 1) -> float:
    """Return how many steps an environment plays in a second at its own speed.

    Atari plays 60 frames in a second, of which each step skips some.
    """
    skipped = getattr(env.unwrapped, "_frameskip", None)
    if isinstance(skipped, int):
        return 60 / skipped
    return (env.metadata.get("render_fps") or 30) / frame_skip
