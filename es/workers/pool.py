"""The pool of worker processes on this machine.

Workers are started once and kept; one that is lost is replaced, and what it was playing is played
again, which changes no result: an episode depends on its task alone. The parameters lie in memory
that all workers share, so that only small tasks go out and only scalars come back. A free worker
takes the next task out of a queue by itself.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import selectors
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import psutil

from es.errors import RunError
from es.rollout import Recipe, Result, Snapshot, Task
from es.workers.crew import ATTEMPTS, Crew, Lost
from es.workers.interface import FAILURES, Progress, failed
from es.workers.processes import cores
from es.workers.queue import TaskQueue
from es.workers.worker import IDLE, Done, Shared

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
            context.RawArray(ctypes.c_float, size),
            context.RawValue(ctypes.c_double),
            context.RawArray(ctypes.c_double, 2 * inputs),
            context.RawArray(ctypes.c_longlong, [IDLE] * count),
            context.RawArray(ctypes.c_double, count),
        )
        self._snapshot = self._shared.snapshot()
        self._crew = Crew(context, recipe, self._shared)
        self._timeout, self._say = timeout, say
        self._batch = self._stillborn = self._count = 0
        self._missed = False  # whether a worker was lost that may have taken a task unseen
        try:
            if workers is None and count > cores():
                self._crew.start(0)
                count = self._affordable(count)
            self._crew.prepare(count)
            for number in range(len(self._crew.workers), count):
                if not self._start(number):
                    say(f"{number} of {count} workers could be started: going on with these.")
                    break
            self._count = len(self._crew.workers)
        except BaseException:
            self.close()
            raise

    @property
    def pids(self) -> list[int]:
        """The process ids of the workers."""
        return [worker.process.pid for worker in self._crew.workers.values()]

    def evaluate(
        self, snapshot: Snapshot, tasks: Sequence[Task], progress: Progress | None = None
    ) -> list[Result]:
        """The results of all tasks, in task order.

        Raises RunError when the same task has failed three times, or no worker can be started. An
        exception in between leaves tasks under way: the pool can then only be closed.
        """
        np.copyto(self._snapshot.theta, snapshot.theta)
        self._shared.sigma.value = snapshot.sigma
        if self._snapshot.statistics is not None and snapshot.statistics is not None:
            np.copyto(self._snapshot.statistics, snapshot.statistics)
        self._batch += 1
        missing = set(range(self._count)) - set(self._crew.workers)
        if missing:  # one that was given up
            self._start(min(missing), attempts=1)
        by_index = {task.index: task for task in tasks}
        results: dict[int, Result] = {}
        failures: Counter[int] = Counter()
        self._hand_out(tasks)
        start = time.monotonic()
        while len(results) < len(tasks):
            messages = self._messages()
            for message in messages:
                if isinstance(message, Lost):
                    playing = self._shared.playing[message.worker.number]
                    task = None if playing in results else by_index.get(playing)
                    self._replace(message, task)
                    failures[playing] += task is not None
                    if task and failures[playing] == FAILURES:
                        raise failed(task, f"the last worker {message.cause}", message.traceback)
                    self._hand_out([task] if task else [])
                elif message.batch == self._batch:  # what is played again may come twice
                    results[message.result.index] = message.result
            if self._missed and not messages and self._idle():
                self._missed = False
                self._hand_out([task for task in tasks if task.index not in results])
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
        self._crew.close(busy={n for n, task in enumerate(self._shared.playing) if task != IDLE})

    def _hand_out(self, tasks: Sequence[Task] = ()) -> None:
        """Fills the queue; the rest of the tasks follow when it has room again."""
        selector = self._crew.selector
        waits = self._queue.fileno() in selector.get_map()
        done = self._queue.put(self._batch, tasks)
        if not done and not waits:
            selector.register(self._queue, selectors.EVENT_WRITE, None)
        elif done and waits:
            selector.unregister(self._queue)

    def _messages(self) -> list[Done | Lost]:
        """What has come from the workers; it may be nothing, where something is to be watched."""
        patience = None if self._timeout is None else min(1.0, self._timeout / 4)
        messages: list[Done | Lost] = []
        for key, _ in self._crew.selector.select(STALLED_SECONDS if self._missed else patience):
            if key.data is None:
                self._hand_out()
            else:
                messages += self._crew.receive(key.data)
        if self._timeout is not None:
            self._end_hung(self._timeout)
        return messages

    def _start(self, number: int, attempts: int = ATTEMPTS) -> bool:
        """Starts a worker; where that is not possible, False, or RunError if there is no other."""
        try:
            self._crew.start(number, attempts)
        except RunError:
            if not self._crew.workers:
                raise
            return False
        return True

    def _end_hung(self, timeout: float) -> None:
        now = time.monotonic()
        for number, worker in self._crew.workers.items():
            if self._shared.playing[number] != IDLE and now - self._shared.since[number] > timeout:
                worker.kill(f"was ended: its episode took over {timeout:g} s (--rollout-timeout)")

    def _idle(self) -> bool:
        """Whether nothing is under way, so that a result that is missing was lost with a worker.

        A worker notes what it plays just after taking it, and could die in between.
        """
        return self._queue.empty() and all(task == IDLE for task in self._shared.playing)

    def _replace(self, lost: Lost, task: Task | None) -> None:
        """Starts another worker, while that is of use; RunError where none comes up."""
        number, crew = lost.worker.number, self._crew
        self._shared.playing[number] = IDLE
        self._missed |= task is None
        self._stillborn = 0 if lost.worker.ready else self._stillborn + 1
        given_up = self._stillborn >= FAILURES
        if given_up and not any(worker.ready for worker in crew.workers.values()):
            raise RunError(f"no worker can be started: the last one {lost.cause}{lost.traceback}")
        doing = (
            f"playing {task}" if task else "between episodes" if lost.worker.ready else "starting"
        )
        replaced = not given_up and self._start(number)
        then = "replaced" if replaced else f"going on with {len(crew.workers)}"
        self._say(f"Worker {number} {lost.cause} while {doing}: {then}.")

    def _affordable(self, wanted: int) -> int:
        """`wanted`, or one per core where so many copies of the first worker take too much."""
        while not self._crew.workers[0].ready:
            for message in self._crew.receive(self._crew.workers[0]):
                if isinstance(message, Lost):
                    self._replace(message, None)
        try:
            each = psutil.Process(self._crew.workers[0].process.pid).memory_full_info().uss
        except psutil.NoSuchProcess:  # it will be replaced
            return wanted
        free = psutil.virtual_memory().available
        count = affordable_workers(wanted, each, free)
        if count < wanted:
            self._say(
                f"{wanted} workers would take {wanted * each / 2**30:.1f} of the "
                f"{free / 2**30:.1f} GiB of free memory: using {count}, one per core."
            )
        return count


def affordable_workers(wanted: int, bytes_each: int, bytes_free: int) -> int:
    """`wanted` workers, or one per core where those would need over half of the free memory."""
    return wanted if wanted * bytes_each <= bytes_free / 2 else min(wanted, cores())
