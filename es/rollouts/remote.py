"""Any pool in a process of its own, which is started again if it dies.

Fork server, workers, shared memory and limits are that process's: they change nothing in the
program that uses the pool, and end with it. The program's `__main__` is not imported anywhere.
"""

import subprocess
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from es.errors import ClusterError, RunError
from es.rollouts.processes import connect, end_group, leave, start_interpreter
from es.rollouts.tasks import FAILURES, Pool, Progress, Results, Snapshot, Tasks

SERVER = "from es.rollouts.remote import serve; serve()"
CLOSE_SECONDS = 10.0  # must exceed the pool's own limit: 1 s, with a Ray started here 5 s
SILENT_SECONDS = 120.0  # of a process that hangs; Ray may upload a large project meanwhile
PAUSE_SECONDS = 2.0  # before the process is started once more


class ByValue:
    """A callable that can be pickled, with the classes and functions of `__main__` that it needs.

    What lies in a module is imported by its name. names: objects that get these names in the
    `__main__` of the process that calls it, where "__main__:Name" is then found. Raise what
    cloudpickle raises if something cannot be pickled.
    """

    def __init__(self, function: Callable[[], Any], names: Mapping[str, Any] | None = None) -> None:
        import cloudpickle

        self._pickled = cloudpickle.dumps((function, names or {}))

    def __call__(self) -> Any:
        """Return what the function returns."""
        import cloudpickle

        import __main__

        function, names = cloudpickle.loads(self._pickled)
        vars(__main__).update(names)
        return function()


class Request(NamedTuple):
    """A method of the pool to call. "submit" has no answer."""

    method: str
    arguments: tuple[Any, ...]


class Answer(NamedTuple):
    """From the process. kind: say, progress, value or error. workers: in words."""

    kind: str
    value: Any
    workers: str = ""


class RemotePool(Pool):
    """The pool `make(say=...)` in another process. `make` is pickled; its errors are raised.

    If the process dies, another one makes the pool and plays the batch again. It is given up after
    FAILURES deaths in a row, but not before `patience` seconds.
    """

    def __init__(
        self,
        make: Callable[..., Pool],
        *,
        patience: float = 0.0,
        say: Callable[[str], None] = print,
    ) -> None:
        self._make, self._patience, self._say = make, patience, say
        self._link: Connection | None = None
        self._workers, self._was_made = "", False
        self._submitted: Request | None = None  # for another process to begin with
        try:
            self._ask(None)
        except BaseException:
            self.close()
            raise

    def submit(self, snapshot: Snapshot, tasks: Tasks) -> None:
        """Start to play tasks; `results` returns their results. The last batch is abandoned.

        The snapshot must not change until then.
        """
        self._submitted = Request("submit", (snapshot, tasks))
        self._send(self._submitted)

    def results(self, progress: Progress | None = None) -> Results:
        """Wait for the results of the submitted tasks and return them, (k,), in task order.

        Raise the pool's errors, and ClusterError if the process is given up.
        """
        return self.call("results", progress=progress)

    def call(self, method: str, *arguments: Any, progress: Progress | None = None) -> Any:
        """Call a method of the pool, with a callback for its progress as the last argument."""
        return self._ask(Request(method, arguments), progress)

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

    def _start(self) -> None:
        """Start the process, make the pool in it, and submit the last batch. Raise EOFError."""
        self._process, self._link = start_interpreter(SERVER)
        self.pid = self._process.pid
        self._send(self._make)
        try:
            self._receive()
        except RunError as error:
            if not self._was_made:
                raise
            raise EOFError(error.message) from error  # such as a cluster that cannot be reached
        self._was_made = True
        if self._submitted:
            self._send(self._submitted)

    def _send(self, message: Any) -> None:
        assert self._link
        with suppress(OSError):  # `_receive` finds that it has died
            self._link.send(message)

    def _ask(self, request: Request | None, progress: Progress | None = None) -> Any:
        """Return the answer to a request. If the process dies, ask another one.

        request: None to start the first one.
        """
        deaths, deadline = 0, time.monotonic() + self._patience
        while True:
            try:
                if deaths or request is None:
                    self._start()
                if request is None:
                    return None
                self._send(request)
                return self._receive(progress)
            except EOFError as error:
                cause = str(error)
            self.close()
            deaths += 1
            if deaths >= FAILURES and time.monotonic() > deadline:
                raise ClusterError(f"{cause}, {deaths} times in a row")
            self._say(f"{cause.capitalize()}: starting it again.")
            if deaths > 1:
                time.sleep(PAUSE_SECONDS)

    def _receive(self, progress: Progress | None = None) -> Any:
        """Return the next value. Raise the error that comes instead, and EOFError at its end."""
        assert self._link
        while True:
            if not self._link.poll(SILENT_SECONDS):
                raise EOFError(f"the process of the workers is silent for {SILENT_SECONDS:g} s")
            try:
                answer: Answer = self._link.recv()
            except (EOFError, OSError) as error:
                code = self._process.wait()
                raise EOFError(f"the process of the workers died (exit code {code})") from error
            if answer.kind == "say":
                self._say(answer.value)
                continue
            if answer.kind == "error":
                raise answer.value
            self._workers = answer.workers
            if answer.kind == "value":
                return answer.value
            if progress:
                progress(answer.value)


def serve() -> None:
    """Serve the program that has started this process by `start_interpreter`."""
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):  # the program wants no more
        link = connect()
        try:
            _serve(link)
        except (EOFError, BrokenPipeError, ConnectionResetError):
            raise
        except RunError as error:
            link.send(Answer("error", error))
        except Exception as error:
            failure = RunError(f"the pool has failed ({error!r})", traceback.format_exc())
            link.send(Answer("error", failure))
    leave(0)


def _serve(link: Connection) -> None:
    """Answer requests. Raise EOFError when the program closes the connection, also in a batch."""

    def say(line: str) -> None:
        link.send(Answer("say", line))

    def progress(done: int) -> None:
        if link.poll():  # nothing can come before the answer but the end
            raise EOFError
        link.send(Answer("progress", done, pool.describe()))

    make = link.recv()
    pool: Pool = make(say=say)
    try:
        link.send(Answer("value", None, pool.describe()))
        while True:
            request: Request = link.recv()
            method = getattr(pool, request.method)
            if request.method == "submit":
                method(*request.arguments)
            else:
                value = method(*request.arguments, progress)
                link.send(Answer("value", value, pool.describe()))
    finally:
        pool.close()
