"""The worker processes: started, listened to, and replaced when they are lost."""

from __future__ import annotations

import contextlib
import selectors
import signal
import time
from multiprocessing import connection
from multiprocessing.context import BaseContext
from typing import Any, NamedTuple

import psutil

from es.errors import RunError
from es.rollouts.interface import FAILURES
from es.rollouts.processes import allow_open_files, for_helpers
from es.rollouts.rollout import Recipe
from es.rollouts.worker import IDLE, Done, Failure, Ready, Shared, work

CLOSE_SECONDS = 1.0
FILES_PER_WORKER, OTHER_FILES = 4, 64
ATTEMPTS, PAUSE_SECONDS = 10, 0.1  # at starting a process: the fork server may just have died

UNKNOWN = 255  # what multiprocessing takes for the exit code when the fork server cannot tell it


class Worker:
    """The master's end of one worker process. ready: whether it has built what it plays with."""

    def __init__(self, number: int, process: Any, ours: connection.Connection) -> None:
        self.number, self.process, self.connection = number, process, ours
        # Not by number alone: once the fork server is dead, that of an ended worker may be reused.
        try:
            self.handle: psutil.Process | None = psutil.Process(process.pid)
        except psutil.NoSuchProcess:  # dead already
            self.handle = None
        self.ready = False
        self.killed_for = ""

    def kill(self, reason: str = "") -> None:
        """End it at once. reason: what `LostWorker` then gives as the cause."""
        self.killed_for = reason
        if self.handle is not None:
            with contextlib.suppress(psutil.NoSuchProcess):
                self.handle.kill()


class LostWorker(NamedTuple):
    """A worker that is no more.

    cause: what happened, in words after "worker 3". traceback: its own, if any.
    """

    worker: Worker
    cause: str
    traceback: str = ""


class WorkerProcesses:
    """The workers, by number, and what they send. The context's fork server makes them."""

    def __init__(self, context: BaseContext, recipe: Recipe, shared: Shared) -> None:
        self._context, self._recipe, self._shared = context, recipe, shared
        self.workers: dict[int, Worker] = {}
        self._stillborn = 0  # workers in a row that were lost while they started
        self.selector = selectors.DefaultSelector()

    def prepare(self, count: int) -> None:
        """Make room for so many workers; raise UsageError where the system does not allow it."""
        allow_open_files(OTHER_FILES + FILES_PER_WORKER * count)

    def start(self, number: int, attempts: int = ATTEMPTS) -> bool:
        """Start worker `number`; return False where that fails, or raise RunError if alone."""
        for left in reversed(range(attempts)):
            try:
                worker = self._start(number)
                break
            except (OSError, EOFError) as error:
                if not left and not self.workers:
                    raise RunError(f"cannot start a worker process: {error}") from error
                if not left:
                    return False
                time.sleep(PAUSE_SECONDS)
        self.workers[number] = worker
        self.selector.register(worker.connection, selectors.EVENT_READ, worker)
        return True

    def replace(self, lost: LostWorker) -> str:
        """Start another worker, while that is of use; return in words what became of it.

        Raise RunError where none comes up.
        """
        number = lost.worker.number
        self._shared.playing[number] = IDLE
        self._stillborn = 0 if lost.worker.ready else self._stillborn + 1
        given_up = self._stillborn >= FAILURES
        if given_up and not any(worker.ready for worker in self.workers.values()):
            raise RunError(f"no worker can be started: the last one {lost.cause}{lost.traceback}")
        replaced = not given_up and self.start(number)
        return "replaced" if replaced else f"going on with {len(self.workers)}"

    def end_hung(self, timeout: float) -> None:
        """Kill the workers whose episodes take longer than so many seconds."""
        now = time.monotonic()
        for number, worker in self.workers.items():
            if self._shared.playing[number] != IDLE and now - self._shared.since[number] > timeout:
                worker.kill(f"was ended: its episode took over {timeout:g} s (--rollout-timeout)")

    def receive(self, worker: Worker) -> list[Done | LostWorker]:
        """Return what has come from a worker, one message at least; a loss is the last of them."""
        messages: list[Done | LostWorker] = []
        more = True
        while more:
            try:
                message: Done | Ready | Failure = worker.connection.recv()
                more = worker.connection.poll()
            except (EOFError, OSError):
                return [*messages, self._drop(worker, self._cause(worker))]
            if isinstance(message, Failure):
                last_line = message.traceback.splitlines()[-1]
                cause = f"failed ({last_line})"
                return [*messages, self._drop(worker, cause, f":\n{message.traceback}")]
            if isinstance(message, Ready):
                worker.ready = True
            else:
                messages.append(message)
        return messages

    def close(self, *, busy: set[int]) -> None:
        """End all workers: the free ones close their environments first, the `busy` are killed."""
        for worker in self.workers.values():
            worker.connection.close()
            if worker.number in busy:
                worker.kill()
        deadline = time.monotonic() + CLOSE_SECONDS
        for worker in self.workers.values():
            worker.process.join(max(0.0, deadline - time.monotonic()))
            worker.kill()
            worker.process.join()
        self.workers.clear()
        self.selector.close()

    def _start(self, number: int) -> Worker:
        ours, theirs = connection.Pipe()
        try:
            arguments = (theirs, self._recipe, self._shared, number)
            process = self._context.Process(target=work, args=arguments, daemon=True)  # type: ignore
            with for_helpers():
                process.start()
            return Worker(number, process, ours)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()

    def _drop(self, worker: Worker, cause: str, traceback: str = "") -> LostWorker:
        self.selector.unregister(worker.connection)
        worker.connection.close()
        worker.kill()
        worker.process.join(CLOSE_SECONDS)
        del self.workers[worker.number]
        return LostWorker(worker, cause, traceback)

    def _cause(self, worker: Worker) -> str:
        if worker.killed_for:
            return worker.killed_for
        worker.process.join(CLOSE_SECONDS)
        code = worker.process.exitcode
        names = {-number: number.name for number in signal.Signals}
        if code is not None and code < 0:
            return f"died (signal {names.get(code, -code)})"
        if code == UNKNOWN:
            return "died, and with it the fork server, which knew of what"
        return f"died (exit code {code})"
