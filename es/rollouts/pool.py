"""The pool of worker processes on this machine.

Workers are started once and kept. A lost worker is replaced and its task played again, which
changes no result: an episode depends on its task alone. The parameters lie in shared memory, so
only tasks and results are sent. All workers read tasks from one pipe, so a free one need not wait
for the master. Of short episodes, it takes two at a time.
"""

import os
import pickle
import select
import selectors
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import connection
from typing import Any

import numpy as np
from torch import multiprocessing

from es.errors import RunError, TaskError, counted, limit_error
from es.rollouts.processes import end_group, starting_helper
from es.rollouts.tasks import (
    FAILURES,
    TASK,
    Pool,
    Progress,
    Recipe,
    Results,
    Snapshot,
    Tasks,
    each_task,
    result_type,
)
from es.rollouts.worker import FAILURE, IDLE, Shared, work

GATHER_SECONDS = 0.004  # for more results: waking up for each would take a core from the workers
WAKE_SECONDS = 0.25  # if nothing has arrived and nobody is playing, unfinished tasks were lost
CLOSE_SECONDS = 1.0  # for free workers to close their environments
TASKS_FOR_TWO = 4  # from this many tasks per worker on, a worker may take two at a time
WRITE_BYTES = select.PIPE_BUF // TASK.itemsize * TASK.itemsize  # of whole tasks, at once
ATTEMPTS, PAUSE_SECONDS = 4, 0.3  # to start a worker: the fork server may just have died


class Worker:
    """The master's end of a worker process. ready: whether it can play."""

    def __init__(self, number: int, process: Any, link: connection.Connection) -> None:
        self.number, self.process, self.link = number, process, link
        self.ready = False
        self.killed_for = ""  # in words that follow "worker 3"
        self._poll = select.poll()  # ten times as quick as the connection's own
        self._poll.register(link, select.POLLIN)

    def receive(self) -> list[bytes]:
        """Return the messages that have arrived. Raise EOFError or OSError if the worker died."""
        messages = [self.link.recv_bytes()]
        with suppress(EOFError, OSError):  # the next call raises it again
            while self._poll.poll(0):
                messages.append(self.link.recv_bytes())
        return messages

    def kill(self) -> None:
        """Kill the worker and everything that its environment has started."""
        end_group(self.process.pid)
        self.process.kill()  # a worker that is starting has no group yet

    def cause_of_death(self) -> str:
        """Return why it has ended, in words that follow "worker 3"."""
        if self.killed_for:
            return self.killed_for
        self.process.join(CLOSE_SECONDS)
        code = self.process.exitcode
        if code is not None and code < 0:
            return f"died (signal {signal.Signals(-code).name})"
        return f"died (exit code {code})"


class WorkerPool(Pool):
    """Persistent worker processes.

    workers: the number of processes. size: P, the number of parameters. inputs: the size of
    observations if these are normalised. relative_sigma: whether snapshots have one. timeout:
    seconds after which an episode counts as hung. say: shows a line to the user. Raise LimitError
    if the system allows no more processes.
    """

    def __init__(
        self,
        recipe: Recipe,
        *,
        workers: int,
        size: int,
        inputs: int = 0,
        relative_sigma: bool = False,
        timeout: float | None = None,
        say: Callable[[str], None] = print,
    ) -> None:
        self._context, self._recipe = multiprocessing.get_context("forkserver"), recipe
        self._timeout, self._say = timeout, say
        self._reader, self._writer = self._context.Pipe(duplex=False)
        os.set_blocking(self._writer.fileno(), False)
        self._unwritten = memoryview(b"")  # tasks that do not fit into the pipe yet
        self._shared = Shared(
            self._context,
            self._reader,
            size,
            inputs,
            relative_sigma=relative_sigma,
            workers=workers,
        )
        self._workers: dict[int, Worker] = {}
        self._selector = selectors.DefaultSelector()
        self._batch = self._finished = self._failed_starts = 0
        self._tasks, self._results = np.zeros(0, TASK), np.zeros(0, result_type(inputs))
        self._failures: Counter[int] = Counter()  # by task
        try:
            for number in range(workers):
                self._start(number)
        except BaseException:
            self.close()
            raise

    @property
    def pids(self) -> list[int]:
        """Return the process ids of the workers."""
        return [worker.process.pid for worker in self._workers.values()]

    def wait_ready(self) -> None:
        """Wait until a worker can play. Raise RunError if none can be started."""
        while not any(worker.ready for worker in self._workers.values()):
            self._receive()

    def submit(self, snapshot: Snapshot, tasks: Tasks) -> None:
        """Start to play tasks; `results` returns their results. The previous batch is abandoned."""
        self.begin(snapshot)
        self.add(tasks)

    def results(self, progress: Progress | None = None) -> Results:
        """Wait for the results of the submitted tasks and return them, (k,), in task order.

        progress: called several times a second. Raise TaskError if a task fails FAILURES times,
        RunError if no worker can be started.
        """
        while self.unfinished:
            self.collect()
            if progress:
                progress(self._finished)
        return self._results

    def begin(self, snapshot: Snapshot) -> None:
        """Begin a batch without tasks. The last one is abandoned."""
        self._unwritten = memoryview(b"")  # workers play what is in the pipe, for nothing
        self._shared.publish(snapshot)
        self._batch += 1
        self._tasks, self._results = self._tasks[:0], self._results[:0]
        self._finished, self._started = 0, time.monotonic()
        self._failures.clear()

    def add(self, tasks: Tasks) -> None:
        """Add tasks to the batch. Their indexes follow those before them."""
        first = len(self._tasks)
        self._tasks = np.concatenate([self._tasks, tasks])
        self._results = np.concatenate([self._results, np.zeros(len(tasks), self._results.dtype)])
        new = self._tasks[first:]
        new["batch"], new["index"] = self._batch, range(first, len(self._tasks))
        self._shared.take_two.value = self.unfinished >= TASKS_FOR_TWO * len(self._workers)
        self._write(new)

    @property
    def unfinished(self) -> int:
        """Return the number of the batch's tasks that have no result yet."""
        return len(self._tasks) - self._finished

    def collect(self) -> Results:
        """Wait for results, at most WAKE_SECONDS. Return the new ones, maybe none.

        Raise errors as `results` does.
        """
        records = self._receive()
        new = np.frombuffer(b"".join(records), self._results.dtype)
        new = new[new["batch"] == self._batch]
        # A task that was handed out twice may have two results, which are the same.
        new = new[self._results["batch"][new["index"]] != self._batch]
        self._results[new["index"]] = new
        self._finished = int(np.count_nonzero(self._results["batch"]))
        if self._finished:
            rest = (time.monotonic() - self._started) * self.unfinished / self._finished
            time.sleep(min(GATHER_SECONDS, rest / 8))
        return new

    def describe(self) -> str:
        """Return the number of workers, in words."""
        return counted(len(self._workers), "worker")

    def close(self) -> None:
        """End all workers: a free one closes its environment first, a busy one is killed."""
        workers = [*self._workers.values()]
        self._writer.close()
        if not self._reader.closed:
            while self._reader.poll() and os.read(self._reader.fileno(), WRITE_BYTES):
                pass  # what nobody took; free workers then read the end of the pipe
        self._reader.close()
        for worker in workers:
            if self._shared.playing[worker.number] != IDLE:
                worker.kill()
        deadline = time.monotonic() + CLOSE_SECONDS
        for worker in workers:
            worker.process.join(max(0.0, deadline - time.monotonic()))
        for worker in workers:
            worker.kill()
        for worker in workers:
            worker.process.join()
            worker.link.close()
        self._workers.clear()
        self._selector.close()

    def _start(self, number: int) -> None:
        """Start worker `number`. Raise LimitError if that fails again and again."""
        link, workers_link = connection.Pipe()
        arguments = (workers_link, self._recipe, self._shared, number)
        process = self._context.Process(target=work, args=arguments, daemon=True)
        with workers_link:
            for attempt in range(ATTEMPTS):
                try:
                    with starting_helper():
                        process.start()
                    break
                except (OSError, EOFError) as error:
                    if attempt == ATTEMPTS - 1:
                        raise limit_error(error) from error
                    time.sleep(PAUSE_SECONDS)
        self._workers[number] = worker = Worker(number, process, link)
        self._selector.register(link, selectors.EVENT_READ, worker)

    def _write(self, tasks: Tasks | None = None) -> None:
        """Write tasks to the pipe, after those that wait. Those that do not fit wait."""
        if tasks is not None:
            self._unwritten = memoryview(bytes(self._unwritten) + tasks.tobytes())
        try:
            while self._unwritten:
                written = os.write(self._writer.fileno(), self._unwritten[:WRITE_BYTES])
                self._unwritten = self._unwritten[written:]
        except BlockingIOError:
            pass

    def _receive(self) -> list[bytes]:
        """Return the records of results that have come. Replace lost workers."""
        patience = WAKE_SECONDS if self._timeout is None else min(WAKE_SECONDS, self._timeout / 4)
        records: list[bytes] = []
        events = self._selector.select(patience)
        for key, _ in events:
            worker: Worker = key.data
            try:
                messages = worker.receive()
            except (EOFError, OSError):
                self._replace(worker, worker.cause_of_death())
                continue
            for message in messages:
                if message.startswith(FAILURE):
                    cause, trace = pickle.loads(message[1:])  # noqa: S301 (from a worker)
                    self._replace(worker, f"failed ({cause})", trace)
                    break
                if not worker.ready:
                    worker.ready, self._failed_starts = True, 0
                records.append(message[1:])
        if not events:  # what its environment has forked may hold the link of a dead worker open
            for worker in [*self._workers.values()]:
                if not worker.process.is_alive():
                    self._replace(worker, worker.cause_of_death())
        if self._unwritten:
            self._write()
        elif (
            not events and not self._reader.poll() and all(i == IDLE for i in self._shared.playing)
        ):
            # A worker that dies between taking a task and noting it loses the task.
            self._write(self._tasks[self._results["batch"] == 0])
        if self._timeout is not None:
            self._kill_hung(self._timeout)
        return records

    def _kill_hung(self, timeout: float) -> None:
        """Kill the workers whose episodes take longer than `timeout` seconds."""
        now = time.monotonic()
        for number, worker in self._workers.items():
            if self._shared.playing[number] != IDLE and now - self._shared.since[number] > timeout:
                worker.killed_for = (
                    f"was ended: its episode took over {timeout:g} s (--rollout-timeout)"
                )
                worker.kill()

    def _replace(self, worker: Worker, cause: str, trace: str = "") -> None:
        """Clean up after a lost worker, put its task back, and start another worker.

        Raise TaskError if its task has failed FAILURES times, and RunError if FAILURES workers in a
        row could not be started and no other is left.
        """
        number, index = worker.number, self._shared.playing[worker.number]
        self._selector.unregister(worker.link)
        worker.link.close()
        worker.kill()
        worker.process.join(CLOSE_SECONDS)
        del self._workers[number]
        self._shared.playing[number] = IDLE
        doing, again = "between episodes" if worker.ready else "starting", self._tasks[:0]
        if not worker.ready:
            self._failed_starts += 1
        elif index < len(self._tasks) and index != IDLE and not self._results["batch"][index]:
            again = self._tasks[index : index + 1]
            ((_, _, task),) = each_task(again)
            doing = f"playing {task}"
            self._failures[index] += 1
            if self._failures[index] == FAILURES:
                raise TaskError(f"{task} failed {FAILURES} times; the last worker {cause}", trace)
        given_up = not worker.ready and self._failed_starts >= FAILURES
        if given_up and not self._workers:
            raise RunError(f"no worker can be started: the last one {cause}", trace)
        if not given_up:
            self._start(number)
        self._write(again)
        # Do not repeat a line for every task and worker: all may fail alike.
        told = self._failures.total() if worker.ready else self._failed_starts
        if told <= FAILURES or (worker.ready and not trace):
            then = f"going on with {len(self._workers)}" if given_up else "replaced"
            shown = f"\n{trace}" if trace and told == 1 else ""
            self._say(f"Worker {number} {cause} while {doing}: {then}.{shown}")
