"""The pool of worker processes on this machine.

Workers are started once and kept. A lost worker is replaced and its task played again, which
changes no result: an episode depends on its task alone. The parameters lie in shared memory, so
that only tasks and results are sent.
"""

import selectors
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Literal

from torch import multiprocessing

from es.errors import limit_error
from es.rollouts.interface import FAILURES, Progress, counted, failed
from es.rollouts.processes import allow_open_files, cores, sharing_memory
from es.rollouts.queue import TaskQueue
from es.rollouts.rollout import Recipe, Result, Snapshot, Task
from es.rollouts.worker import IDLE, Done, Shared
from es.rollouts.worker_processes import LostWorker, WorkerProcesses, affordable_workers

GATHER_SECONDS = 0.004
ENOUGH = 4  # tasks for each worker, of which it may take two at once
STALLED_SECONDS = 0.25  # after so long without a message, a task that no worker plays is missing
FILES_PER_WORKER, OTHER_FILES = 4, 64


class WorkerPool:
    """Persistent worker processes.

    size: P, the number of parameters. inputs: the size of observations if these are normalised.
    spread: whether snapshots have a spread. workers: the number of processes; None: `members`;
    'auto': one per core. timeout: seconds after which an episode hangs. say: shows lines.
    """

    def __init__(
        self,
        recipe: Recipe,
        *,
        size: int,
        members: int,
        inputs: int = 0,
        spread: bool = False,
        workers: int | Literal["auto"] | None = None,
        timeout: float | None = None,
        say: Callable[[str], None] = print,
    ) -> None:
        count = members if workers is None else cores() if workers == "auto" else workers
        context = multiprocessing.get_context("forkserver")
        self._queue = TaskQueue(context)
        with sharing_memory():
            self._shared = Shared.allocate(
                context, self._queue.reader, size, inputs, spread=spread, workers=count
            )
        self._processes = WorkerProcesses(context, recipe, self._shared)
        self._timeout, self._say = timeout, say
        self._batch = self._count = self._finished = 0
        self._started = time.monotonic()
        self._tasks: dict[int, Task] = {}  # by index, without a result
        self._failures: Counter[int] = Counter()
        self._missed = False  # whether a lost worker may have taken tasks without noting them
        self._prepared: list[Task] = []
        try:
            if workers is None and count > cores():
                self._processes.start(0)
                count = affordable_workers(count, self.await_first(), say)
            allow_open_files(OTHER_FILES + FILES_PER_WORKER * count)
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
        """Wait until a worker is ready; return its process id. Raise RunError if none starts."""
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
        """Return the results in task order; after an exception, the pool can only be closed.

        Raise TaskError if a task fails FAILURES times, RunError if no worker can be started.
        """
        if self._prepared != [*tasks]:
            self.prepare(snapshot, tasks)
        self._prepared = []
        results: dict[int, Result] = {}
        while self.unfinished:
            results |= {result.index: result for result in self.collect()}
            if results and progress:
                progress(len(results))
        return [results[task.index] for task in tasks]

    def prepare(self, snapshot: Snapshot, tasks: Sequence[Task]) -> None:
        """Have these tasks played, for an `evaluate` of the same tasks."""
        self.begin(snapshot)
        self.add(tasks)
        self._prepared = [*tasks]

    def begin(self, snapshot: Snapshot) -> None:
        """Start a batch. Tasks of the last one that are unfinished are given up."""
        self._queue.clear()
        self._tasks.clear()
        self._shared.publish(snapshot)
        self._batch += 1
        self._failures.clear()
        self._finished, self._started = 0, time.monotonic()
        missing = set(range(self._count)) - set(self._processes.workers)
        if missing:  # a start has failed before
            self._processes.start(min(missing), attempts=1)

    def add(self, tasks: Sequence[Task]) -> None:
        """Hand out tasks of the batch, after those that wait already."""
        self._tasks |= {task.index: task for task in tasks}
        self._shared.pairs.value = len(self._tasks) >= ENOUGH * self._count
        self._hand_out(tasks)

    @property
    def unfinished(self) -> int:
        """Return the number of the batch's tasks that have no result yet."""
        return len(self._tasks)

    def collect(self, patience: float | None = None) -> list[Result]:
        """Wait for results, at most `patience` seconds; return those that came, maybe none.

        Raise errors as `evaluate` does.
        """
        messages, results = self._messages(patience), list[Result]()
        for message in messages:
            if isinstance(message, LostWorker):
                self._play_again(message)
            # A task that is played again may have two results.
            elif message.batch == self._batch and message.result.index in self._tasks:
                del self._tasks[message.result.index]
                results.append(message.result)
        if self._missed and not messages and self._idle():
            self._missed = False
            self._hand_out([*self._tasks.values()])
        self._finished += len(results)
        if self._finished:
            # Waking up for every result would take a core from the workers too often.
            rest = (time.monotonic() - self._started) * self.unfinished / self._finished
            time.sleep(min(GATHER_SECONDS, rest / 8))
        return results

    def describe(self) -> str:
        """Return the number of workers, in words."""
        return counted(len(self._processes.workers), "worker")

    def close(self) -> None:
        """End all workers: a free one closes its environment first, a busy one is killed."""
        self._queue.close()
        for complaint in self._processes.close():
            self._say(f"The environment was not closed well: {complaint}.")

    def _hand_out(self, tasks: Sequence[Task] = ()) -> None:
        """Fill the queue; the other tasks follow when it has room again."""
        selector = self._processes.selector
        waits = self._queue.fileno() in selector.get_map()
        done = self._queue.put(self._batch, tasks)
        if not done and not waits:
            selector.register(self._queue, selectors.EVENT_WRITE, None)
        elif done and waits:
            selector.unregister(self._queue)

    def _messages(self, patience: float | None) -> list[Done | LostWorker]:
        """Return what the workers sent; maybe nothing, if there is a limit on waiting."""
        limits = [patience, STALLED_SECONDS if self._missed else None]
        if self._timeout is not None:
            limits.append(min(1.0, self._timeout / 4))
        messages: list[Done | LostWorker] = []
        seconds = min((limit for limit in limits if limit is not None), default=None)
        for key, _ in self._processes.selector.select(seconds):
            if key.data is None:
                self._hand_out()
            else:
                messages += self._processes.receive(key.data)
        if self._timeout is not None:
            self._processes.end_hung(self._timeout)
        return messages

    def _play_again(self, lost: LostWorker) -> None:
        """Have another worker play a lost worker's task; raise TaskError after FAILURES."""
        playing = self._shared.playing[lost.worker.number]
        task = self._tasks.get(playing)
        self._replace(lost, task)
        if task is None:
            return
        self._failures[playing] += 1
        if self._failures[playing] == FAILURES:
            how = f"{FAILURES} times; the last worker {lost.cause}"
            raise failed(task, how, lost.trace)
        self._hand_out([task])

    def _idle(self) -> bool:
        # If all is idle, a missing result was lost with a worker, which notes one task at a time,
        # just after taking it.
        return self._queue.empty() and all(task == IDLE for task in self._shared.playing)

    def _replace(self, lost: LostWorker, task: Task | None) -> None:
        if lost.limited and self._batch <= 1:  # later, the other workers go on
            raise limit_error(f"a worker {lost.cause}")
        self._missed = True
        free = "between episodes" if lost.worker.ready else "starting"
        doing = f"playing {task}" if task else free
        then = self._processes.replace(lost)
        told = self._failures.total() if lost.worker.ready else self._processes.failed_starts - 1
        # All tasks may raise the same, and all workers may fail alike.
        if told < FAILURES or (lost.worker.ready and not lost.trace):
            trace = f"\n{lost.trace}" if lost.trace and not told else ""
            self._say(f"Worker {lost.worker.number} {lost.cause} while {doing}: {then}.{trace}")
