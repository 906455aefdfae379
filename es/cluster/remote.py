"""The pool of a cluster in a process of its own, which is started again if it dies.

Ray ends the process that loses its node, and the trainer must outlive that. The trainer's
`__main__` is not imported there.
"""

import subprocess
import time
import traceback
from collections.abc import Callable
from contextlib import closing, suppress
from multiprocessing.connection import Connection
from typing import Any

from es.errors import ClusterError, RunError
from es.rollouts.processes import connect_to_starter, end_group, leave, start_interpreter
from es.rollouts.tasks import FAILURES, Pool, Progress, Results, Snapshot, Tasks

SERVER = "from es.cluster.remote import serve; serve()"
CLOSE_SECONDS = 10.0  # must exceed the pool's own limit: 1 s, with a Ray started here 5 s
SILENT_SECONDS = 120.0  # of a process that hangs; Ray may upload a large project meanwhile
PAUSE_SECONDS = 2.0  # before the process is started once more


class RemotePool(Pool):
    """The pool `make(say=...)` in another process. `make` is pickled; its errors are raised.

    The pool has `evaluate`, `describe` and `close`. If the process dies, another one makes the pool
    and plays the batch again. It is given up after FAILURES deaths in a row, but not before
    `patience` seconds.
    """

    def __init__(
        self, make: Callable[..., Any], *, patience: float = 0.0, say: Callable[[str], None] = print
    ) -> None:
        self._make, self._patience, self._say = make, patience, say
        self._link: Connection | None = None
        self._workers, self._was_made = "", False
        try:
            self._ask(None)
        except BaseException:
            self.close()
            raise

    def results(self, progress: Progress | None = None) -> Results:
        """Play the submitted tasks and return their results, (k,), in task order.

        Raise the pool's errors, and ClusterError if the process is given up.
        """
        return self._ask(self._submitted, progress)

    def describe(self) -> str:
        """Return the number of workers, in words."""
        return self._workers

    def close(self) -> None:
        """End the process and all that it has started. May be called again."""
        if self._link is None:
            return
        self._link.close()
        self._link = None
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(CLOSE_SECONDS)
        end_group(self._process.pid)  # workers then end with what their environments have started
        self._process.wait()

    def _ask(self, batch: tuple[Snapshot, Tasks] | None, progress: Progress | None = None) -> Any:
        """Return the results of a batch. If the process dies, ask another one.

        batch: None to make the pool alone.
        """
        deaths, deadline = 0, time.monotonic() + self._patience
        while True:
            try:
                if self._link is None:
                    self._start()
                return self._answer(batch, progress) if batch else None
            except EOFError as error:
                cause = str(error)
            self.close()
            deaths += 1
            if deaths >= FAILURES and time.monotonic() > deadline:
                raise ClusterError(f"{cause}, {deaths} times in a row")
            self._say(f"{cause[0].upper()}{cause[1:]}: starting it again.")
            if deaths > 1:
                time.sleep(PAUSE_SECONDS)

    def _start(self) -> None:
        """Start the process, and make the pool in it. Raise EOFError if it dies."""
        self._process, self._link = start_interpreter(SERVER)
        try:
            self._answer(self._make)
        except RunError as error:
            if not self._was_made:
                raise
            raise EOFError(error.message) from error  # such as a cluster that cannot be reached
        self._was_made = True

    def _answer(self, message: Any, progress: Progress | None = None) -> Any:
        """Send a message and return its answer. Raise its error, and EOFError at the end."""
        assert self._link
        with suppress(OSError):  # it has died, as receiving shows
            self._link.send(message)
        while True:
            if not self._link.poll(SILENT_SECONDS):
                raise EOFError(f"the workers' process has not answered for {SILENT_SECONDS:g} s")
            try:
                kind, value, workers = self._link.recv()
            except (EOFError, OSError) as error:
                code = self._process.wait()
                raise EOFError(f"the process of the workers died (exit code {code})") from error
            if kind == "say":
                self._say(value)
                continue
            if kind == "error":
                raise value
            self._workers = workers
            if kind == "value":
                return value
            if progress:
                progress(value)


def serve() -> None:
    """Serve the program that has started this process by `start_interpreter`."""
    ended = (EOFError, BrokenPipeError, ConnectionResetError)  # the program wants no more
    with suppress(*ended):
        link = connect_to_starter()
        try:
            _serve(link)
        except ended:
            raise
        except Exception as error:
            if not isinstance(error, RunError):
                error = RunError(f"the pool has failed ({error!r})", traceback.format_exc())
            link.send(("error", error, ""))
    leave(0)


def _serve(link: Connection) -> None:
    """Play batches. Raise EOFError when the program closes the connection, also in a batch."""

    def say(line: str) -> None:
        link.send(("say", line, ""))

    def progress(done: int) -> None:
        if link.poll():  # nothing can come before the answer but the end
            raise EOFError
        link.send(("progress", done, pool.describe()))

    make = link.recv()
    with closing(make(say=say)) as pool:
        link.send(("value", None, pool.describe()))
        while True:
            results = pool.evaluate(*link.recv(), progress)
            link.send(("value", results, pool.describe()))
