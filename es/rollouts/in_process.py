"""The pool without worker processes."""

from collections.abc import Callable, Sequence

from es.errors import episode_trace, is_interrupt, summary_of
from es.rollouts.interface import Progress, failed
from es.rollouts.player import Player
from es.rollouts.rollout import Recipe, Result, Snapshot, Task, close


class InProcessPool:
    """A pool that plays every task in this process, one after the other, for debugging.

    say: shows a line to the user.
    """

    def __init__(self, recipe: Recipe, say: Callable[[str], None] = print) -> None:
        self._say = say
        self._player: Player | None = Player(recipe)

    def evaluate(
        self, snapshot: Snapshot, tasks: Sequence[Task], progress: Progress | None = None
    ) -> list[Result]:
        """Return the results in task order; raise TaskError at a task's first exception.

        A task is not played again, so that a debugger stops once. After an exception, the pool can
        only be closed.
        """
        results: list[Result] = []
        for task in tasks:
            results.append(self._play(snapshot, task))
            if progress:
                progress(len(results))
        return results

    def prepare(self, snapshot: Snapshot, tasks: Sequence[Task]) -> None:
        """Do nothing: this process has other things to do."""

    def describe(self) -> str:
        """Return that there are no workers, for the live line."""
        return "no workers"

    def close(self) -> None:
        """Close the environment, once."""
        player, self._player = self._player, None
        if player and (complaint := close(player.env)):
            self._say(f"The environment was not closed well: {complaint}.")

    def _play(self, snapshot: Snapshot, task: Task) -> Result:
        assert self._player is not None
        try:
            return self._player.play(snapshot, task)
        except BaseException as error:
            if is_interrupt(error):
                raise
            raise failed(task, f"({summary_of(error)})", episode_trace(error)) from error
