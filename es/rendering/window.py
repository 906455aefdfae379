"""A window that shows an environment's pictures at the environment's own speed."""

import os
import sys
from typing import Any

import numpy as np

from es.errors import UsageError
from es.rendering.show_frames import Picture

SMALLEST_SIDE, LARGEST_SIDE = 400, 1600  # pixels: small pictures such as Atari's are enlarged


class WindowClosed(Exception):  # noqa: N818 (no error)
    """The user closed the window."""


class Window:
    """A viewer on the screen; raise UsageError if there is no display."""

    def __init__(self, title: str, frames_per_second: float) -> None:
        self._pygame, self._title = _open_display(), title
        self._screen: Any = None
        self._clock = self._pygame.time.Clock()
        self._frames_per_second = frames_per_second

    def show(self, picture: Picture) -> None:
        """Show a picture for the duration of a frame; raise WindowClosed."""
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
        """Close the window."""
        self._pygame.display.quit()


def enlargement(size: tuple[int, ...]) -> int:
    """Return the factor by which pictures of this size, in pixels, are enlarged."""
    return max(1, min(-(-SMALLEST_SIDE // min(size)), LARGEST_SIDE // max(size)))


def watching(*, drawable: bool) -> tuple[str, ...]:
    """Return the flags that show a policy: in a window, or as a video if there is no display.

    drawable: whether its environment can be drawn; if not, the flags play it unseen.
    """
    if not drawable:
        return ("--test", "--no-render")
    return ("--test",) if _may_have_display() else ("--test", "--video", "policy.mp4")


def _may_have_display() -> bool:
    variables = ("SDL_VIDEODRIVER", "DISPLAY", "WAYLAND_DISPLAY")
    return sys.platform != "linux" or any(os.environ.get(name) for name in variables)


def _open_display() -> Any:
    """Return the module pygame with its display opened; raise UsageError if there is none."""
    none = UsageError(
        "--test: there is no display here to open a window on; give --video FILE.mp4 or --no-render"
    )
    if not _may_have_display():
        raise none  # SDL would print an error of its own
    import pygame

    try:
        pygame.display.init()
    except pygame.error:
        raise none from None
    invisible = pygame.display.get_driver() in ("offscreen", "dummy")  # SDL's last resorts
    if invisible and not os.environ.get("SDL_VIDEODRIVER"):
        raise none
    return pygame
