"""The pool of all workers of a Ray cluster.

Another process uses Ray. If it ends or loses the cluster, the master starts a new one, and has
tasks without a result played again.
"""

import importlib.util
import math
import multiprocessing
import pickle
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import connection
from typing import Any, Literal

from es.algorithm.noise import FloatArray, Weights, weighted_sum
from es.cluster import messages
from es.cluster.bridge import serve
from es.cluster.connection import LOCAL
from es.cluster.packing import pack_tasks, unpack_results
from es.errors import PROJECT, ClusterError, UsageError, how_to_install
from es.rollouts.interface import Progress, counted
from es.rollouts.processes import cores, for_helpers
from es.rollouts.rollout import Recipe, Result, Snapshot, Task

CLOSE_SECONDS = 5.0  # enough for a Ray of our own to end
CONNECT_SECONDS = 120.0  # for an attempt to connect, which may send a large project
AGAIN_SECONDS = 2.0  # between attempts
SILENT_SECONDS = 60.0  # if it is silent for longer, that process hangs: it answers every second
WORTH_SENDING = 50_000_000  # random numbers; fewer are drawn here in less time than sending takes


class RayPool:
    """Workers on every node of the cluster at `address`.

    workers: processes on each node; None and 'auto': one per CPU. preload, variables: modules and
    environment variables for the processes that workers are forked from. patience: a run ends
    after so many seconds without any worker. say: shows a line to the user. settings: further
    arguments of the nodes' `WorkerPool`. Raise UsageError if Ray is not installed, or if there is
    no cluster.
    """

    def __init__(
        self,
        address: str,
        recipe: Recipe,
        *,
        workers: int | Literal["auto"] | None = None,
        patience: float = 120.0,
        preload: Sequence[str] = (),
        variables: Mapping[str, str] | None = None,
        say: Callable[[str], None] = print,
        **settings: Any,
    ) -> None:
        if importlib.util.find_spec("ray") is None:
            raise UsageError(
                f"--ray {address}: Ray is not installed; "
                f"{how_to_install('ray', 'requirements-ray.txt')}"
            )
        cpus = workers if isinstance(workers, int) else cores()
        order = messages.Order(pickle.dumps(recipe), workers, patience, preload, settings)
        self._arguments = address, (cpus, variables or {}, order)
        self._patience, self._say = patience, say
        self._status, self._again = messages.Status(), 0  # again: before the last connection
        self._link: connection.Connection | None = None
        self._process: Any = None
        self._folder: str | None = None  # of a Ray of our own
        self._connect()

    def evaluate(
        self, snapshot: Snapshot, tasks: Sequence[Task], progress: Progress | None = None
    ) -> list[Result]:
        """Return the results in task order.

        Raise TaskError if an episode cannot be played, ClusterError if there is no worker for long.
        After an exception, the pool can only be closed.
        """
        results: dict[int, Result] = {}
        asked, lost_since = False, math.inf  # the first loss since the last result
        while len(results) < len(tasks):
            try:
                if not asked:
                    missing = [task for task in tasks if task.index not in results]
                    self._ask(messages.Play(snapshot, pack_tasks(missing)))
                    asked = True
                answer = self._receive(SILENT_SECONDS)
            except LinkLostError as error:
                lost_since = min(lost_since, time.monotonic())
                if time.monotonic() - lost_since > self._patience:
                    raise ClusterError(
                        f"Ray has failed for {self._patience:g} s (--ray-timeout): {error}"
                    ) from error
                self._again += self._status.again + (self._status.out if asked else 0)
                self._status, asked = messages.Status(), False
                self._connect_again()
                continue
            assert isinstance(answer, messages.Played)
            for packed in answer.results:
                lost_since = math.inf
                results |= {result.index: result for result in unpack_results(packed)}
            self._status = answer.status
            if progress:
                progress(len(results))
        return [results[task.index] for task in tasks]

    def prepare(self, snapshot: Snapshot, tasks: Sequence[Task]) -> None:
        """Do nothing: the nodes get all tasks of a batch at once."""

    def sum_noise(self, weights: Weights, size: int, fraction: float = 1.0) -> FloatArray:
        """Return `noise.weighted_sum`, to the bit, summed on the nodes if that is faster."""
        if len(weights) * size >= WORTH_SENDING:
            try:
                self._ask(messages.Sum(weights, size, fraction))
                # The other process waits half as long for the nodes, then sums by itself.
                answer = self._receive(2 * messages.sum_seconds(weights, size))
                assert isinstance(answer, messages.Summed)
                return answer.total
            except LinkLostError:  # `evaluate` connects again
                self.close()
        return weighted_sum(weights, size, fraction, threads=cores())

    def describe(self) -> str:
        """Return the numbers of nodes, workers, and episodes that were played again."""
        nodes, workers, _, again = self._status
        again += self._again
        more = f", {again} played again" if again else ""
        return f"{counted(nodes, 'node')}, {counted(workers, 'worker')}{more}"

    def _connect(self) -> None:
        """Start the process and wait until it has reached Ray; raise UsageError if it fails."""
        address, arguments = self._arguments
        context = multiprocessing.get_context("spawn")
        if address == LOCAL:
            self._folder = tempfile.mkdtemp(prefix="ray-")
        ours, theirs = context.Pipe()
        process = context.Process(
            target=serve, args=(theirs, address, self._folder, *arguments), daemon=True
        )
        sys.path.append(str(PROJECT))  # which the process takes over, to find this package
        try:
            with for_helpers():
                process.start()
                self._process, self._link = process, ours
        except OSError as error:
            raise UsageError(f"--ray {address}: cannot start a process ({error})") from error
        finally:
            del sys.path[-1]
            theirs.close()
        try:
            assert isinstance(self._receive(CONNECT_SECONDS), messages.Connected)
        except LinkLostError as error:
            self.close()
            raise UsageError(f"--ray {address}: Ray cannot be used ({error})") from error
        except UsageError:
            self.close()
            raise

    def _connect_again(self) -> None:
        """Connect again; raise ClusterError if that fails for long."""
        self._say("The connection to Ray is lost: connecting again.")
        deadline = time.monotonic() + self._patience
        while True:
            self.close()
            try:
                return self._connect()
            except UsageError as error:
                if time.monotonic() > deadline:
                    raise ClusterError(
                        f"no connection for {self._patience:g} s (--ray-timeout); {error}"
                    ) from error
            time.sleep(AGAIN_SECONDS)

    def _ask(self, request: messages.Play | messages.Sum) -> None:
        if self._link is None:
            raise LinkLostError("it has ended")
        try:
            self._link.send(request)
        except OSError as error:
            raise LinkLostError(f"it has ended: {error}") from error

    def _receive(self, seconds: float) -> messages.Connected | messages.Played | messages.Summed:
        """Return the next answer; raise it if it is a RunError, or LinkLostError if none comes."""
        assert self._link is not None
        while True:
            try:
                if not self._link.poll(seconds):
                    raise LinkLostError(f"it has been silent for {seconds:g} s")
                answer: messages.Answer = self._link.recv()
            except (EOFError, OSError) as error:
                raise LinkLostError("it has ended") from error
            if isinstance(answer, messages.Broken):
                raise LinkLostError(answer.cause)
            if isinstance(answer, messages.Failed):
                raise answer.error
            if not isinstance(answer, messages.Said):
                return answer
            self._say(answer.line)

    def close(self) -> None:
        """End the process, which ends the agents; may be called again."""
        if self._link is not None:
            self._link.close()
            self._link = None
            self._process.join(CLOSE_SECONDS)
            self._process.kill()
            self._process.join()
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None


class LinkLostError(Exception):
    """The process that talks to Ray has ended, or hangs."""
