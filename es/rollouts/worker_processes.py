"""The worker processes: start them, receive from them, replace lost ones."""

import contextlib
import re
import select
import selectors
import signal
import time
from collections.abc import Callable
from multiprocessing import connection
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from es.errors import RunError
from es.rollouts.interface import FAILURES
from es.rollouts.processes import ROOT, control_groups, cores, end_group, for_helpers
from es.rollouts.rollout import Recipe
from es.rollouts.worker import IDLE, Done, Failure, Parting, Ready, Shared, work

CLOSE_SECONDS = 1.0
ATTEMPTS, PAUSE_SECONDS = 4, 0.3  # to start a process: the fork server may just have died
UNKNOWN = 255  # multiprocessing's exit code when the fork server cannot tell it


class Worker:
    """The master's end of a worker process. ready: whether it can play."""

    def __init__(self, number: int, process: Any, ours: connection.Connection) -> None:
        self.number, self.process, self.connection = number, process, ours
        self.ready = False
        self.killed_for = ""  # the cause in `LostWorker`
        self._poll = select.poll()  # ten times as quick as the connection's own
        self._poll.register(ours, select.POLLIN)

    def sent_more(self) -> bool:
        """Return whether a message, or the end of the connection, can be received."""
        return bool(self._poll.poll(0))

    def kill(self) -> None:
        """End at once what its environment has started, and the worker if it is not dead yet."""
        end_group(self.process.pid)
        self.process.kill()  # a worker that is starting has no group yet


class LostWorker(NamedTuple):
    """A worker that has ended. cause: in words that follow "worker 3". trace: its traceback.

    limited: whether the system allowed it no thread.
    """

    worker: Worker
    cause: str
    trace: str = ""
    limited: bool = False


class WorkerProcesses:
    """The workers by number, which the context's fork server starts, and what they send."""

    def __init__(self, context: BaseContext, recipe: Recipe, shared: Shared) -> None:
        self._context, self._recipe, self._shared = context, recipe, shared
        self.workers: dict[int, Worker] = {}
        self.failed_starts = 0  # in a row
        self._failed_attempts = 0  # to start a process, since a worker was last ready
        self.selector = selectors.DefaultSelector()

    def start(self, number: int, attempts: int = ATTEMPTS) -> bool:
        """Start worker `number`; return whether it works; raise RunError if none is left.

        attempts: give up after so many failures since a worker was last ready.
        """
        while True:
            try:
                worker = self._start(number)
                break
            except (OSError, EOFError) as error:
                self._failed_attempts += 1
                if self._failed_attempts < attempts:
                    time.sleep(PAUSE_SECONDS)
                    continue
                if not self.workers:
                    raise RunError(
                        f"--workers: cannot start a worker process ({error}); if the system allows "
                        "too few processes or too little memory, raise the limit (ulimit -u, -v)"
                    ) from error
                return False
        self.workers[number] = worker
        self.selector.register(worker.connection, selectors.EVENT_READ, worker)
        return True

    def replace(self, lost: LostWorker) -> str:
        """Start another worker, unless that keeps failing; return the outcome in words.

        Raise RunError if no worker can be started, and none is left that plays or starts.
        """
        number = lost.worker.number
        self._shared.playing[number] = IDLE
        self.failed_starts = 0 if lost.worker.ready else self.failed_starts + 1
        given_up = self.failed_starts >= FAILURES
        if given_up and not self.workers:
            raise RunError(f"no worker can be started: the last one {lost.cause}", lost.trace)
        replaced = not given_up and self.start(number)
        return "replaced" if replaced else f"going on with {len(self.workers)}"

    def end_hung(self, timeout: float) -> None:
        """Kill the workers whose episodes take longer than `timeout` seconds."""
        now = time.monotonic()
        for number, worker in self.workers.items():
            if self._shared.playing[number] != IDLE and now - self._shared.since[number] > timeout:
                reason = f"was ended: its episode took over {timeout:g} s (--rollout-timeout)"
                worker.killed_for = reason
                worker.kill()

    def receive(self, worker: Worker) -> list[Done | LostWorker]:
        """Return a worker's messages, at least one; if it is lost, `LostWorker` is the last."""
        messages: list[Done | LostWorker] = []
        more = True
        while more:
            try:
                message: list[Done] | Ready | Failure = worker.connection.recv()
                more = worker.sent_more()
            except (EOFError, OSError):
                return [*messages, self._drop(worker, self._cause(worker))]
            if isinstance(message, Failure):
                lost = self._drop(worker, f"failed ({message.cause})", message.trace)
                return [*messages, lost._replace(limited=message.limited)]
            if isinstance(message, Ready):
                worker.ready = True
                self._failed_attempts = 0
            else:
                messages += message
        return messages

    def close(self) -> list[str]:
        """End all workers: free ones close their environments first, busy ones are killed.

        Return what the user should know of their environments.
        """
        for worker in self.workers.values():
            if self._shared.playing[worker.number] != IDLE:
                worker.kill()
        deadline = time.monotonic() + CLOSE_SECONDS
        for worker in self.workers.values():
            worker.process.join(max(0.0, deadline - time.monotonic()))
        for worker in self.workers.values():
            worker.kill()
        complaints: dict[str, None] = {}  # most often, all have the same
        for worker in self.workers.values():
            worker.process.join()
            with contextlib.suppress(EOFError, OSError):
                while True:
                    if isinstance(message := worker.connection.recv(), Parting):
                        complaints[message.complaint] = None
            worker.connection.close()
        self.workers.clear()
        self.selector.close()
        return [*complaints]

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

    def _drop(self, worker: Worker, cause: str, trace: str = "") -> LostWorker:
        self.selector.unregister(worker.connection)
        worker.connection.close()
        worker.kill()
        worker.process.join(CLOSE_SECONDS)
        del self.workers[worker.number]
        return LostWorker(worker, cause, trace)

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


def affordable_workers(wanted: int, pid: int, say: Callable[[str], None]) -> int:
    """Return `wanted`, or one worker per core if those need over half of the free memory.

    pid: a worker's, whose memory is measured. say: tells the user about the latter case.
    """
    try:
        each = psutil.Process(pid).memory_full_info().uss
    except psutil.NoSuchProcess:  # it will be replaced
        return wanted
    free, count = free_memory(), min(wanted, cores())
    if wanted * each <= free / 2:
        return wanted
    say(
        f"{wanted} workers would take {wanted * each / 2**30:.1f} of the "
        f"{free / 2**30:.1f} GiB of free memory: using {count}, one per core."
    )
    return count


def free_memory(root: Path = ROOT) -> int:
    """Return the bytes of memory that processes may still take, here or in this container."""
    free = psutil.virtual_memory().available
    for group in control_groups("memory", root):
        for limit, usage in (
            ("memory.max", "memory.current"),  # version 2
            ("memory.limit_in_bytes", "memory.usage_in_bytes"),  # version 1
        ):
            with contextlib.suppress(OSError, ValueError):  # no such file, or its limit is "max"
                left = int((group / limit).read_text()) - int((group / usage).read_text())
                # Usage includes cached files, of which the kernel frees these when needed.
                statistics = (group / "memory.stat").read_text()
                cached = re.findall(r"^(?:total_)?inactive_file (\d+)$", statistics, re.MULTILINE)
                free = min(free, left + max(map(int, cached), default=0))
    return max(0, free)
