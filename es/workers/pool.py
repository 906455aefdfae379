"""Pools that play tasks: worker processes on this machine, or this process itself.

A pool has `evaluate(snapshot, tasks) -> results in task order` and `close()`. Workers are started
once and kept. The parameters lie in memory that all workers share, so that only small tasks go out
and only scalars come back. A free worker takes the next task out of a queue by itself.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import selectors
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing import connection
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import psutil

from es.errors import RunError
from es.rollout import Player, Recipe, Result, Snapshot, Task
from es.workers.processes import allow_open_files, cores, importable
from es.workers.queue import TaskQueue
from es.workers.worker import IDLE, Failure, Ready, Shared, work

Progress = Callable[[int], None]
CLOSE_SECONDS = 1.0
FILES_PER_WORKER = 4
GATHER_SECONDS = 0.004


class Pool(Protocol):
    """What the master loop needs of a pool."""

    def evaluate(
        self, snapshot: Snapshot, tasks: Sequence[Task], progress: Progress | None = None
    ) -> list[Result]:
        """The results of all tasks, in task order. progress: called with the number done so far."""

    def close(self) -> None:
        """Ends what the pool started, without waiting for what is under way; may be repeated."""


class InProcessPool:
    """Plays every task in this process, one after the other: the same program, for debugging."""

    def __init__(self, recipe: Recipe) -> None:
        self._player = Player(recipe)

    def evaluate(
        self, snapshot: Snapshot, tasks: Sequence[Task], progress: Progress | None = None
    ) -> list[Result]:
        """The results of all tasks, in task order; RunError where the environment raises."""
        results = []
        for task in tasks:
            try:
                results.append(self._player.play(snapshot, task))
            except Exception as error:
                raise RunError(f"playing {task} failed:\n{traceback.format_exc()}") from error
            if progress:
                progress(len(results))
        return results

    def close(self) -> None:
        """Closes the environment."""
        self._player.env.close()


class WorkerPool:
    """Persistent worker processes.

    size: P, the number of parameters. inputs: how many numbers an observation has, where these are
    normalised. workers: how many processes; 'auto' is one per core. members: how many parameters
    are played in a batch, the default number of workers. say: shows a line to the user.
    """

    def __init__(
        self,
        recipe: Recipe,
        *,
        size: int,
        members: int,
        inputs: int = 0,
        workers: int | Literal["auto"] | None = None,
        say: Callable[[str], None] = print,
    ) -> None:
        count = members if workers is None else cores() if workers == "auto" else workers
        self._context = multiprocessing.get_context("forkserver")
        self._queue = TaskQueue(self._context)
        self._shared = Shared(
            self._queue.reader,
            self._context.RawArray(ctypes.c_float, size),
            self._context.RawValue(ctypes.c_double),
            self._context.RawArray(ctypes.c_double, 2 * inputs),
            self._context.RawArray(ctypes.c_longlong, [IDLE] * count),
        )
        self._snapshot = self._shared.snapshot()
        self._recipe = recipe
        self._selector = selectors.DefaultSelector()
        self._workers: list[_Worker] = []
        try:
            if workers is None and count > cores():
                self._start(1)
                count = self._affordable(count, say)
            self._start(count - len(self._workers))
        except BaseException:
            self.close()
            raise

    @property
    def pids(self) -> list[int]:
        """The process ids of the workers."""
        return [worker.process.pid for worker in self._workers if worker.process.pid]

    def evaluate(
        self, snapshot: Snapshot, tasks: Sequence[Task], progress: Progress | None = None
    ) -> list[Result]:
        """The results of all tasks, in task order.

        Raises RunError when a worker dies or its environment raises. An exception in between leaves
        tasks under way: the pool can then only be closed.
        """
        np.copyto(self._snapshot.theta, snapshot.theta)
        self._shared.sigma.value = snapshot.sigma
        if self._snapshot.statistics is not None and snapshot.statistics is not None:
            np.copyto(self._snapshot.statistics, snapshot.statistics)
        by_index = {task.index: task for task in tasks}
        results: dict[int, Result] = {}
        self._queue.put(tasks)
        self._hand_out()
        start = time.monotonic()
        while len(results) < len(tasks):
            for key, _ in self._selector.select():
                if key.data is None:
                    self._hand_out()
                    continue
                for message in self._receive(key.data, by_index):
                    if isinstance(message, Result):
                        results[message.index] = message
            if results:
                if progress:
                    progress(len(results))
                # To wake for every result would take a core from the workers again and again.
                rest = (time.monotonic() - start) * (len(tasks) / len(results) - 1)
                time.sleep(min(GATHER_SECONDS, rest / 8))
        return [results[task.index] for task in tasks]

    def close(self) -> None:
        """Ends all workers: a free one closes its environment first, a busy one is killed."""
        self._queue.close()
        for worker, playing in zip(self._workers, self._shared.playing, strict=False):
            worker.connection.close()
            if playing != IDLE:
                worker.process.kill()
        deadline = time.monotonic() + CLOSE_SECONDS
        for worker in self._workers:
            worker.process.join(max(0.0, deadline - time.monotonic()))
            worker.process.kill()
            worker.process.join()
        self._workers.clear()
        self._selector.close()

    def _start(self, count: int) -> None:
        allow_open_files(64 + FILES_PER_WORKER * (len(self._workers) + count))
        with importable():
            for _ in range(count):
                ours, theirs = self._context.Pipe()
                arguments = (theirs, self._recipe, self._shared, len(self._workers))
                process = self._context.Process(target=work, args=arguments, daemon=True)
                try:
                    process.start()
                except (OSError, EOFError) as error:
                    raise RunError(f"cannot start a worker process: {error}") from error
                theirs.close()
                worker = _Worker(process, ours)
                self._workers.append(worker)
                self._selector.register(ours, selectors.EVENT_READ, worker)

    def _hand_out(self) -> None:
        """Fills the queue; the rest of the tasks follow when it has room again."""
        waits = self._queue.fileno() in self._selector.get_map()
        done = self._queue.flush()
        if not done and not waits:
            self._selector.register(self._queue, selectors.EVENT_WRITE, None)
        elif done and waits:
            self._selector.unregister(self._queue)

    def _receive(self, worker: _Worker, tasks: Mapping[int, Task]) -> Iterator[Result | Ready]:
        """A worker's messages so far, one at least.

        Raises RunError where it failed or died, with what it was playing.
        """
        more = True
        while more:
            try:
                message: Result | Ready | Failure = worker.connection.recv()
                more = worker.connection.poll()
            except (EOFError, OSError) as error:
                raise RunError(self._obituary(worker, tasks)) from error
            if isinstance(message, Failure):
                doing = self._doing(worker, tasks)
                raise RunError(f"a worker failed {doing}:\n{message.traceback}")
            yield message

    def _obituary(self, worker: _Worker, tasks: Mapping[int, Task]) -> str:
        worker.process.join(CLOSE_SECONDS)
        code = worker.process.exitcode
        names = {-number: number.name for number in signal.Signals}
        if code is not None and code < 0:
            cause = f"signal {names.get(code, -code)}"
        else:
            cause = f"exit code {code}"
        doing = self._doing(worker, tasks)
        return f"worker process {worker.process.pid} died ({cause}) {doing}"

    def _doing(self, worker: _Worker, tasks: Mapping[int, Task]) -> str:
        task = tasks.get(self._shared.playing[self._workers.index(worker)])
        return f"playing {task}" if task else "while it was idle or starting"

    def _affordable(self, wanted: int, say: Callable[[str], None]) -> int:
        """`wanted`, or one per core where so many copies of the first worker take too much."""
        first = self._workers[0]
        next(self._receive(first, {}))
        each = psutil.Process(first.process.pid).memory_full_info().uss
        free = psutil.virtual_memory().available
        count = affordable_workers(wanted, each, free)
        if count < wanted:
            say(
                f"{wanted} workers would take {wanted * each / 2**30:.1f} of the "
                f"{free / 2**30:.1f} GiB of free memory: using {count}, one per core."
            )
        return count


class _Worker(NamedTuple):
    """The master's end of one worker process."""

    process: Any
    connection: connection.Connection


def affordable_workers(wanted: int, bytes_each: int, bytes_free: int) -> int:
    """`wanted` workers, or one per core where those would need over half of the free memory."""
    return wanted if wanted * bytes_each <= bytes_free / 2 else min(wanted, cores())
