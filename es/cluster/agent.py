"""The Ray actor on each node, with the pool of its worker processes."""

import pickle
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from es.checkpoint import versions
from es.errors import TaskError
from es.rollouts.pool import WorkerPool
from es.rollouts.processes import hide_checkout, search_last, start_forkserver
from es.rollouts.tasks import Results, Snapshot, Tasks, result_type

REPORT_SECONDS = 0.5  # between reports: these results are lost with a node


class Report(NamedTuple):
    """From an agent: the results since its last report, with the indexes of their tasks.

    workers: their number now. said: lines for the user. error: why an episode cannot be played; the
    agent can then only be ended.
    """

    results: Results
    workers: int
    said: list[str]
    error: Exception | None = None


class Agent:
    """A node's workers. The arguments are those of the `RayPool`; workers: a number."""

    def __init__(
        self, workers: int, recipe: bytes, preload: Sequence[str], settings: Mapping[str, Any]
    ) -> None:
        # Otherwise every worker process runs the actor's main program, which imports Ray.
        vars(sys.modules["__main__"]).pop("__file__", None)
        hide_checkout()
        search_last()
        start_forkserver(preload)
        self._said: list[str] = []
        self._indexes = np.zeros(0, np.int64)  # in the master's batch, of the pool's tasks
        self._no_results = np.zeros(0, result_type(settings.get("inputs", 0)))
        self._pool = WorkerPool(
            pickle.loads(recipe),  # noqa: S301 (from the master)
            workers=workers,
            say=self._said.append,
            **settings,
        )

    def arrive(self) -> tuple[int, dict[str, str]]:
        """Wait until a worker is ready. Return the number of workers and the node's versions.

        Raise RunError if none can be started.
        """
        self._pool.wait_ready()
        return len(self._pool.pids), versions()

    def play(self, snapshot: Snapshot | None, tasks: Tasks, unfinished: int) -> Report:
        """Add tasks. Report when only `unfinished` are left, or after some time.

        snapshot: given with the first tasks of a batch. Raise RunError if no worker is left.
        """
        if snapshot is not None:
            self._pool.begin(snapshot)
            self._indexes = self._indexes[:0]
        self._indexes = np.concatenate([self._indexes, tasks["index"]])
        self._pool.add(tasks)
        results, error, start = self._no_results, None, time.monotonic()
        try:
            while self._pool.unfinished > unfinished and (
                not len(results) or time.monotonic() - start < REPORT_SECONDS
            ):
                results = np.concatenate([results, self._pool.collect()])
        except TaskError as caught:
            error = caught
        results["index"] = self._indexes[results["index"]]
        said, self._said[:] = self._said[:], []
        return Report(results, len(self._pool.pids), said, error)

    def close(self) -> None:
        """End the workers."""
        self._pool.close()
