"""The pool without worker processes."""

import contextlib
import traceback
from collections.abc import Sequence

from es.rollouts.interface import FAILURES, Progress, failed
from es.rollouts.rollout import Player, Recipe, Result, Snapshot, Task


class InProcessPool:
    """A pool that plays every task in this process, one after the other, for debugging."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe, self._player = recipe, Player(recipe)

    def evaluate(
        self, snapshot: Snapshot, tasks: Sequence[Task], progress: Progress | None = None
    ) -> list[Result]:
        """Return the results in task order; raise TaskError if a task fails FAILURES times."""
        results: list[Result] = []
        for task in tasks:
            results.append(self._play(snapshot, task))
            if progress:
                progress(len(results))
        return results

    def describe(self) -> str:
        """Return that there are no workers, for the live line."""
        return "no workers"

    def close(self) -> None:
        """Close the environment."""
        self._player.env.close()

    def _play(self, snapshot: Snapshot, task: Task) -> Result:
        for attempt in range(1, FAILURES + 1):
            try:
                return self._player.play(snapshot, task)
            except Exception as error:
                if attempt == FAILURES:
                    raise failed(task, "it raised", f":\n{traceback.format_exc()}") from error
                with contextlib.suppress(Exception):  # close may fail after the first error
                    self._player.env.close()
                self._player = Player(self._recipe)
        raise AssertionError
