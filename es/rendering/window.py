"""A window that shows an environment's pictures, at its own speed."""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np

from es.errors import UsageError
from es.rendering.show_frames import Picture

SMALLEST_SIDE, LARGEST_SIDE = 400, 1600  # pixels: small pictures, such as Atari's, are enlarged


class WindowClosed(Exception):  # noqa: N818 (no error)
    """The user closed the window."""


class Window:
    """A viewer on the screen; raises UsageError where there is no display."""

    def __init__(self, title: str, frames_per_second: float) -> None:
        self._pygame, self._title = _open_display(), title
        self._screen: Any = None
        self._clock = self._pygame.time.Clock()
        self._frames_per_second = frames_per_second

    def show(self, picture: Picture) -> None:
        """Shows a picture for as long as it is due; raises WindowClosed."""
        pygame = self._pygame
        surface = pygame.surfarray.make_surface(np.transpose(picture.pixels, (1, 0, 2)))
        if self._screen is None:
            factor = enlargement(surface.get_size())
            size = tuple(factor * side for side in surface.get_size())
            self._screen = pygame.display.set_mode(size)
            pygame.display.set_caption(self._title)
        pygame.transform.scale(surface, self._screen.get_size(), self._screen)
        pygame.display.flip()
        self._clock.tick(self._frames_per_second)
        if any(event.type == pygame.QUIT for event in pygame.event.get()):
            raise WindowClosed

    def close(self) -> None:
        """Closes the window."""
        self._pygame.display.quit()


def enlargement(size: tuple[int, ...]) -> int:
    """How many times as large pictures of this size (of pixels) are shown."""
    return max(1, min(-(-SMALLEST_SIDE // min(size)), LARGEST_SIDE // max(size)))


def watching() -> tuple[str, ...]:
    """The flags that show a policy: in a window, or as a video where there is no display."""
    return ("--test",) if _may_have_display() else ("--test", "--video", "policy.mp4")


def _may_have_display() -> bool:
    variables = ("SDL_VIDEODRIVER", "DISPLAY", "WAYLAND_DISPLAY")
    return sys.platform != "linux" or any(os.environ.get(name) for name in variables)


def _open_display() -> Any:
    """The module pygame with its display opened; raises UsageError where there is none."""
    none = UsageError(
        "--test: there is no display here to open a window on; give --video FILE.mp4 or --no-render"
    )
    if not _may_have_display():
        raise none  # SDL would complain on its own before it falls back
    import pygame

    try:
        pygame.display.init()
    except pygame.error:
        raise none from None
    if not os.environ.get("SDL_VIDEODRIVER") and pygame.display.get_driver() in (
        "offscreen",
        "dummy",
    ):
        raise none  # SDL's last resorts, which show nothing
    return pygame
