"""The pool of worker processes on this machine.

Workers are started once and kept; one that is lost is replaced, and what it was playing is played
again, which changes no result: an episode depends on its task alone. The parameters lie in memory
that all workers share, so that only small tasks go out and only scalars come back. A free worker
takes the next task out of a queue by itself.
"""

from __future__ import annotations

import ctypes
import selectors
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import torch
from torch import multiprocessing

from es.rollouts.interface import FAILURES, Progress, counted, failed
from es.rollouts.memory import affordable
from es.rollouts.processes import cores
from es.rollouts.queue import TaskQueue
from es.rollouts.rollout import Recipe, Result, Snapshot, Task
from es.rollouts.worker import IDLE, Done, Shared
from es.rollouts.worker_processes import LostWorker, WorkerProcesses

GATHER_SECONDS = 0.004
STALLED_SECONDS = 0.25  # without any message, after which a task that nobody plays is missed


class WorkerPool:
    """Persistent worker processes.

    size: P, the number of parameters. inputs: how many numbers an observation has, where these are
    normalised. workers: how many processes; 'auto' is one per core. members: how many parameters
    are played in a batch, the default number of workers. timeout: seconds of an episode after which
    its worker is taken to hang. say: shows a line to the user.
    """

    def __init__(
        self,
        recipe: Recipe,
        *,
        size: int,
        members: int,
        inputs: int = 0,
        workers: int | Literal["auto"] | None = None,
        timeout: float | None = None,
        say: Callable[[str], None] = print,
    ) -> None:
        count = members if workers is None else cores() if workers == "auto" else workers
        context = multiprocessing.get_context("forkserver")
        self._queue = TaskQueue(context)
        self._shared = Shared(
            self._queue.reader,
            torch.zeros(size).share_memory_(),
            context.RawValue(ctypes.c_double),
            context.RawArray(ctypes.c_double, 2 * inputs),
            context.RawArray(ctypes.c_longlong, [IDLE] * count),
            context.RawArray(ctypes.c_double, count),
        )
        self._snapshot = self._shared.snapshot()
        self._processes = WorkerProcesses(context, recipe, self._shared)
        self._timeout, self._say = timeout, say
        self._batch = self._count = self._finished = 0
        self._started = time.monotonic()
        self._tasks: dict[int, Task] = {}  # those of the batch without a result, by index
        self._failures: Counter[int] = Counter()
        self._missed = False  # whether a worker was lost that may have taken a task unseen
        try:
            if workers is None and count > cores():
                self._processes.start(0)
                count = affordable(count, self.await_first(), say)
            self._processes.prepare(count)
            for number in range(len(self._processes.workers), count):
                if not self._processes.start(number):
                    say(f"{number} of {count} workers could be started: going on with these.")
                    break
            self._count = len(self._processes.workers)
        except BaseException:
            self.close()
            raise

    @property
    def pids(self) -> list[int]:
        """Return the process ids of the workers."""
        return [worker.process.pid for worker in self._processes.workers.values()]

    def await_first(self) -> int:
        """Wait for a worker to be ready; return its process id. Raise RunError where none is."""
        workers = self._processes.workers
        while not (ready := [worker for worker in workers.values() if worker.ready]):
            for key, _ in self._processes.selector.select():
                for message in self._processes.receive(key.data):
                    if isinstance(message, LostWorker):
                        self._replace(message, None)
        return ready[0].process.pid

    def evaluate(
        self, snapshot: Snapshot, tasks: Sequence[Task], progress: Progress | None = None
    ) -> list[Result]:
        """Return the results of all tasks, in task order.

        Raise RunError when the same task has failed three times, or no worker can be started. An
        exception in between leaves tasks under way: the pool can then only be closed.
        """
        self.begin(snapshot)
        self.add(tasks)
        results: dict[int, Result] = {}
        while self.unfinished:
            results |= {result.index: result for result in self.collect()}
            if results and progress:
                progress(len(results))
        return [results[task.index] for task in tasks]

    def begin(self, snapshot: Snapshot) -> None:
        """Start another batch, once all tasks of the last one are finished."""
        np.copyto(self._snapshot.theta, snapshot.theta)
        self._shared.sigma.value = snapshot.sigma
        if self._snapshot.statistics is not None and snapshot.statistics is not None:
            np.copyto(self._snapshot.statistics, snapshot.statistics)
        self._batch += 1
        self._failures.clear()
        self._finished, self._started = 0, time.monotonic()
        missing = set(range(self._count)) - set(self._processes.workers)
        if missing:  # one that was given up
            self._processes.start(min(missing), attempts=1)

    def add(self, tasks: Sequence[Task]) -> None:
        """Hand out tasks of the batch, after those that are waiting already."""
        self._tasks |= {task.index: task for task in tasks}
        self._hand_out(tasks)

    @property
    def unfinished(self) -> int:
        """Return how many tasks of the batch have no result yet."""
        return len(self._tasks)

    def collect(self, patience: float | None = None) -> list[Result]:
        """Wait for results, so many seconds at most; return those that came, maybe none.

        Raise RunError as `evaluate` does.
        """
        messages, results = self._messages(patience), list[Result]()
        for message in messages:
            if isinstance(message, LostWorker):
                self._play_again(message)
            # What is played again may come twice.
            elif message.batch == self._batch and message.result.index in self._tasks:
                del self._tasks[message.result.index]
                results.append(message.result)
        if self._missed and not messages and self._idle():
            self._missed = False
            self._hand_out([*self._tasks.values()])
        self._finished += len(results)
        if self._finished:
            # To wake for every result would take a core from the workers again and again.
            rest = (time.monotonic() - self._started) * self.unfinished / self._finished
            time.sleep(min(GATHER_SECONDS, rest / 8))
        return results

    def describe(self) -> str:
        """Return the number of workers, in words."""
        return counted(len(self._processes.workers), "worker")

    def close(self) -> None:
        """End all workers: a free one closes its environment first, a busy one is killed."""
        self._queue.close()
        self._processes.close(
            busy={n for n, task in enumerate(self._shared.playing) if task != IDLE}
        )

    def _hand_out(self, tasks: Sequence[Task] = ()) -> None:
        """Fill the queue; the rest of the tasks follow when it has room again."""
        selector = self._processes.selector
        waits = self._queue.fileno() in selector.get_map()
        done = self._queue.put(self._batch, tasks)
        if not done and not waits:
            selector.register(self._queue, selectors.EVENT_WRITE, None)
        elif done and waits:
            selector.unregister(self._queue)

    def _messages(self, patience: float | None) -> list[Done | LostWorker]:
        """Return what has come from the workers: nothing now and then, where one is watched."""
        often = (
            patience,
            STALLED_SECONDS if self._missed else None,
            min(1.0, self._timeout / 4) if self._timeout is not None else None,
        )
        messages: list[Done | LostWorker] = []
        limits = [seconds for seconds in often if seconds is not None]
        for key, _ in self._processes.selector.select(min(limits, default=None)):
            if key.data is None:
                self._hand_out()
            else:
                messages += self._processes.receive(key.data)
        if self._timeout is not None:
            self._processes.end_hung(self._timeout)
        return messages

    def _play_again(self, lost: LostWorker) -> None:
        """Have another worker play what a lost one was playing; raise RunError after FAILURES."""
        playing = self._shared.playing[lost.worker.number]
        task = self._tasks.get(playing)
        self._replace(lost, task)
        if task is None:
            return
        self._failures[playing] += 1
        if self._failures[playing] == FAILURES:
            raise failed(task, f"the last worker {lost.cause}", lost.traceback)
        self._hand_out([task])

    def _idle(self) -> bool:
        """Return whether nothing is under way, so that a missing result was lost with a worker.

        A worker notes what it plays just after taking it, and could die in between.
        """
        return self._queue.empty() and all(task == IDLE for task in self._shared.playing)

    def _replace(self, lost: LostWorker, task: Task | None) -> None:
        """Start another worker, while that is of use, and say so; raise RunError as that does."""
        self._missed |= task is None
        doing = (
            f"playing {task}" if task else "between episodes" if lost.worker.ready else "starting"
        )
        then = self._processes.replace(lost)
        self._say(f"Worker {lost.worker.number} {lost.cause} while {doing}: {then}.")
