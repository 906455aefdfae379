"""What a terminal shows while episodes are played."""

from typing import Protocol

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn


class Film(Protocol):
    """What is recorded. frames: how many so far."""

    frames: int


class Playing(Progress):
    """The number of the episode that is being played; of a film, also a bar of its frames.

    film: if one is recorded. episodes: how many are played for it. steps: of an episode at most.
    Where rich cannot draw over what it has drawn, nothing is shown.
    """

    def __init__(self, console: Console, film: Film | None, episodes: int, steps: int) -> None:
        self._film, self._episodes, self._steps = film, episodes, steps
        frames = TextColumn("frame {task.completed:,} of at most {task.total:,}")
        bar = (BarColumn(), frames, TimeRemainingColumn(), TextColumn("left")) if film else ()
        super().__init__(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            *bar,
            console=console,
            transient=True,
            disable=console.quiet or not console.is_interactive,
        )
        self._task = self.add_task("", total=None, visible=False)  # until an episode begins

    def begin(self, episode: int) -> None:
        """Show that an episode, counted from 0, is played."""
        self.update(self._task, description=f"Playing episode {episode + 1} ...", visible=True)
        if self._film:
            left = (self._episodes - episode) * (self._steps + 1)  # and the picture of its start
            self.update(self._task, total=self._film.frames + left)

    def get_renderable(self) -> RenderableType:
        """Return what is drawn, several times a second."""
        if self._film and self.tasks:
            self.update(self._task, completed=self._film.frames)
        return super().get_renderable()
