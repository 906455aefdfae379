"""The interface of all pools."""

from collections.abc import Callable, Sequence
from typing import Protocol

from es.errors import TaskError
from es.rollouts.rollout import Result, Snapshot, Task

Progress = Callable[[int], None]
FAILURES = 3  # a run ends after so many of one task, or of starting workers in a row


class Pool(Protocol):
    """What the master loop uses of a pool."""

    def evaluate(
        self, snapshot: Snapshot, tasks: Sequence[Task], progress: Progress | None = None
    ) -> list[Result]:
        """Return the results in task order. progress: called with the number done so far."""

    def prepare(self, snapshot: Snapshot, tasks: Sequence[Task]) -> None:
        """Begin with tasks, for the next `evaluate`; one of other tasks gives them up."""

    def describe(self) -> str:
        """Return the number of workers in words, for the live line."""

    def close(self) -> None:
        """End all workers without waiting for their episodes; may be called again."""


def failed(task: Task, how: str, trace: str = "") -> TaskError:
    """Return the error of a task that cannot be played. how: in words that follow "failed"."""
    error = TaskError(f"{task} failed {how}", trace)
    error.index = task.index
    return error


def counted(count: int, thing: str) -> str:
    """Return such words as "1 worker", "2 workers"."""
    return f"{count} {thing}{'' if count == 1 else 's'}"
