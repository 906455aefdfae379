"""What runs on a node: the pool of its worker processes, as a Ray actor."""

from __future__ import annotations

import pickle
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from es.cluster.packing import Integers, Packed, pack_results, unpack_tasks
from es.errors import TaskError
from es.noise import LEAF, FloatArray, Weights, tree_sum, weighted_sum
from es.program import search_last
from es.rollouts.pool import WorkerPool
from es.rollouts.processes import start_forkserver
from es.rollouts.rollout import Result, Snapshot
from es.runs.versions import versions

REPORT_SECONDS = 0.5  # so much work may be lost with a node, besides its episodes under way
SIGN_SECONDS = 5.0  # between signs of life, when there are no results


class Arrival(NamedTuple):
    """Sent once a worker has built what it plays with. versions: of the libraries there."""

    workers: int
    versions: dict[str, str]


class Report(NamedTuple):
    """What has been played since the last one.

    workers: of the moment. said: lines for the user. failure, failed: an episode that cannot be
    played here, and its task's index; the agent can then only be ended.
    """

    results: Packed
    workers: int
    said: list[str]
    failure: str = ""
    failed: int = -1


class Agent:
    """A node's workers.

    recipe: a pickled `Recipe`. workers: how many processes. preload: modules for the process
    that they are forked from. settings: further arguments of the `WorkerPool`.
    """

    def __init__(
        self, recipe: bytes, workers: int, preload: Sequence[str], settings: Mapping[str, Any]
    ) -> None:
        # Or every worker process would run the actor's main program, and import Ray.
        vars(sys.modules["__main__"]).pop("__file__", None)
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
        """Waits until it can play; RunError where no worker comes up."""
        self._pool.await_first()
        return Arrival(len(self._pool.pids), versions())

    def play(self, snapshot: Snapshot | None, tasks: Integers, unfinished: int) -> Report:
        """Takes more tasks, and reports when so many are unfinished, or some time has passed.

        snapshot: with the first tasks of a batch. Raises RunError where this node cannot go on.
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
        """`noise.weighted_sum`, leaves side by side: the workers' cores are idle now."""
        leaves = [weights[start : start + LEAF] for start in range(0, len(weights), LEAF)]
        threads = max(1, self._workers // len(leaves))
        with ThreadPoolExecutor(len(leaves)) as executor:
            sums = executor.map(
                lambda leaf: weighted_sum(leaf, size, fraction, threads=threads), leaves
            )
            return tree_sum([*sums])

    def add_up(self, *parts: FloatArray) -> FloatArray:
        """`noise.tree_sum` of what other nodes have summed."""
        return tree_sum(parts)

    def close(self) -> None:
        """Ends the workers."""
        self._pool.close()
