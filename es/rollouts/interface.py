"""What all pools have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from es.errors import TaskError
from es.rollouts.rollout import Result, Snapshot, Task

Progress = Callable[[int], None]
FAILURES = 3  # of the same task, or of workers that are starting, which end a run


class Pool(Protocol):
    """What the master loop needs of a pool."""

    def evaluate(
        self, snapshot: Snapshot, tasks: Sequence[Task], progress: Progress | None = None
    ) -> list[Result]:
        """The results of all tasks, in task order. progress: called with the number done so far."""

    def describe(self) -> str:
        """Who plays, in a few words for the live line."""

    def close(self) -> None:
        """Ends what the pool started, without waiting for what is under way; may be repeated."""


def failed(task: Task, how: str, traceback: str) -> TaskError:
    """The error that ends a run whose task cannot be played."""
    error = TaskError(f"{task} failed {FAILURES} times; {how}{traceback}")
    error.index = task.index
    return error


def counted(count: int, thing: str) -> str:
    """Such as "1 worker", "2 workers"."""
    return f"{count} {thing}{'' if count == 1 else 's'}"
