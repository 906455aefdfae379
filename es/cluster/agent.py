"""The Ray actor on each node, with the pool of its worker processes."""

import os
import pickle
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from es.algorithm.noise import LEAF, FloatArray, Weights, tree_sum, weighted_sum
from es.checkpoint import versions
from es.cluster.packing import Integers, Packed, pack_results, unpack_tasks
from es.errors import TaskError
from es.rollouts.pool import WorkerPool
from es.rollouts.processes import IMPORTS, hide_checkout, search_last, start_forkserver
from es.rollouts.rollout import Result, Snapshot

REPORT_SECONDS = 0.5  # between reports: these results are lost with a node
SIGN_SECONDS = 5.0  # between reports without results


class Arrival(NamedTuple):
    """Sent once a worker is ready. versions: of the node's libraries."""

    workers: int
    versions: dict[str, str]


class Report(NamedTuple):
    """The results since the last report.

    workers: their number now. said: lines for the user. failure, failed: the error of an episode
    that cannot be played here, and its task's index; the agent can then only be ended.
    """

    results: Packed
    workers: int
    said: list[str]
    failure: str = ""
    failed: int = -1


class Agent:
    """A node's workers.

    recipe: a pickled `Recipe`. workers: the number of processes. preload: modules for the process
    that they are forked from. settings: further arguments of the `WorkerPool`.
    """

    def __init__(
        self, recipe: bytes, workers: int, preload: Sequence[str], settings: Mapping[str, Any]
    ) -> None:
        # Otherwise every worker process runs the actor's main program, which imports Ray.
        vars(sys.modules["__main__"]).pop("__file__", None)
        hide_checkout()
        if os.environ.get(IMPORTS):
            search_last()
        start_forkserver(preload)
        self._said: list[str] = []
        self._workers = workers
        self._pool = WorkerPool(
            pickle.loads(recipe),  # noqa: S301 (from the master)
            workers=workers,
            members=workers,
            say=self._said.append,
            **settings,
        )

    def arrive(self) -> Arrival:
        """Wait until a worker is ready; raise RunError if none can be started."""
        self._pool.await_first()
        return Arrival(len(self._pool.pids), versions())

    def play(self, snapshot: Snapshot | None, tasks: Integers, unfinished: int) -> Report:
        """Add tasks; report when only `unfinished` are left, or after some time.

        snapshot: given with the first tasks of a batch. Raise RunError if no worker is left.
        """
        if snapshot is not None:
            self._pool.begin(snapshot)
        results: list[Result] = []
        failure, failed, start = "", -1, time.monotonic()
        self._pool.add(unpack_tasks(tasks))
        try:
            while self._pool.unfinished > unfinished and (
                time.monotonic() - start < (REPORT_SECONDS if results else SIGN_SECONDS)
            ):
                results += self._pool.collect(REPORT_SECONDS)
        except TaskError as error:
            failure, failed = str(error), error.index
        said, self._said[:] = self._said[:], []
        workers = len(self._pool.pids)
        return Report(pack_results(results), workers, said, failure, failed)

    def sum_noise(self, weights: Weights, size: int, fraction: float) -> FloatArray:
        """Return `noise.weighted_sum`, made by threads: the workers are idle now."""
        leaves = [weights[start : start + LEAF] for start in range(0, len(weights), LEAF)]
        threads = max(1, self._workers // len(leaves))
        with ThreadPoolExecutor(len(leaves)) as executor:
            sums = executor.map(
                lambda leaf: weighted_sum(leaf, size, fraction, threads=threads), leaves
            )
            return tree_sum([*sums])

    def add_up(self, *parts: FloatArray) -> FloatArray:
        """Return `noise.tree_sum` of other nodes' sums."""
        return tree_sum(parts)

    def close(self) -> None:
        """End the workers."""
        self._pool.close()
