"""A pool in a process of its own, for programs that are not this one.

Fork server, workers, shared memory, temporary files and limits are that process's: they change
nothing in the program, and end with it. The program's `__main__` is not imported anywhere.
"""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, Self

import psutil

from es.algorithm.noise import FloatArray, Weights
from es.errors import RunError
from es.rollouts.interface import FAILURES, Progress
from es.rollouts.messages import Answer, Begin, Call, Failed, Open, Progressed, Said
from es.rollouts.processes import ONE_THREAD, importing_variables
from es.rollouts.rollout import Recipe, Result, Snapshot, Task

SERVER = "from es.rollouts.pool_server import main; main()"
CLOSE_SECONDS = 10.0  # the pool itself waits for a second, and a Ray of its own for five
GONE_SECONDS = 5.0  # until the fork server and the workers have noticed


class PoolProcess:
    """The process, started at once; `open` makes a pool in it, which this object then is.

    If the process dies, another one is started, which makes the pool and plays the batch again.
    preload: modules that the workers need, imported meanwhile; () if there will be no workers here.
    variables: environment variables. Leave its context, or call `close`, to end all processes.
    """

    def __init__(
        self, preload: Sequence[str] = (), variables: Mapping[str, str] | None = None
    ) -> None:
        self._begin = Begin([folder or os.getcwd() for folder in sys.path], preload)
        self._variables = dict(variables or {})
        self._say: Callable[[str], None] = print
        self._workers = ""
        self._made: Open | None = None
        self._start()

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        try:
            self._process: subprocess.Popen[bytes] | None = subprocess.Popen(
                [sys.executable, "-P", "-c", SERVER, str(theirs.fileno())],
                env=os.environ | importing_variables() | ONE_THREAD | self._variables,
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C in the terminal is for the program
            )
        finally:
            theirs.close()
        self.pid = self._process.pid
        self._link = Connection(ours.detach())
        self._send(self._begin)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def open(
        self,
        make: Callable[..., Any],
        recipe: Recipe,
        *,
        say: Callable[[str], None] = print,
        **settings: Any,
    ) -> Self:
        """Make the pool `make(recipe, **settings)`, such as a `WorkerPool`; raise its errors."""
        self._say = say
        self._made = Open(make, recipe, settings)
        self._ask(self._made)
        return self

    def evaluate(
        self, snapshot: Snapshot, tasks: Sequence[Task], progress: Progress | None = None
    ) -> list[Result]:
        """Return the results in task order; raise the pool's errors.

        Raise RunError if the process dies FAILURES times.
        """
        return self._ask(Call("evaluate", (snapshot, tasks)), progress)

    def prepare(self, snapshot: Snapshot, tasks: Sequence[Task]) -> None:
        """Have these tasks played, for an `evaluate` of the same tasks."""
        self._send(Call("prepare", (snapshot, tasks)))

    def sum_noise(self, weights: Weights, size: int, fraction: float = 1.0) -> FloatArray:
        """Return the sum of a `RayPool`, which nodes may have made."""
        return self._ask(Call("sum_noise", (weights, size, fraction)))

    def describe(self) -> str:
        """Return the number of workers, in words."""
        return self._workers

    def close(self) -> None:
        """End the process and all that it has started; may be called again."""
        process, self._process = self._process, None
        if process is None:
            return
        family: list[psutil.Process] = []
        try:
            if process.poll() is None:  # or its number may be another's
                family = psutil.Process(process.pid).children(recursive=True)
            self._read_last_words()
            process.wait(CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            pass
        finally:
            self._link.close()
            process.kill()  # workers then end with what their environments have started
            process.wait()
            for each in psutil.wait_procs(family, GONE_SECONDS)[1]:
                with suppress(psutil.NoSuchProcess):
                    each.kill()

    def _read_last_words(self) -> None:
        deadline = time.monotonic() + CLOSE_SECONDS
        with suppress(OSError, EOFError):
            self._link.send(None)
            while self._link.poll(max(0.0, deadline - time.monotonic())):
                if isinstance(message := self._link.recv(), Said):
                    self._say(message.line)

    def _send(self, message: Begin | Open | Call) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):  # `_receive` says why
            self._link.send(message)

    def _ask(self, request: Open | Call, progress: Progress | None = None) -> Any:
        """Return the answer to a request; if the process dies, ask another one.

        Raise the error that the request ended with, and RunError after FAILURES deaths.
        """
        deaths = 0
        while True:
            try:
                if deaths:
                    self._start_again(request)
                self._send(request)
                return self._receive(progress)
            except EOFError as error:
                deaths += 1
                code = self._process.wait() if self._process else None
                line = f"the process of the workers died (exit code {code})"
                if deaths == FAILURES:
                    raise RunError(f"{line}, {FAILURES} times in a row") from error
                self._say(f"{line.capitalize()}: starting it again.")

    def _start_again(self, request: Open | Call) -> None:
        self._link.close()
        self._start()
        if self._made and request is not self._made:
            self._send(self._made)
            self._receive()

    def _receive(self, progress: Progress | None = None) -> Any:
        """Return the answer to what was sent; raise the error that it ended with.

        Raise EOFError if the process has died.
        """
        while True:
            try:
                message: Said | Progressed | Answer | Failed = self._link.recv()
            except OSError as error:  # such as in the middle of a message
                raise EOFError from error
            if isinstance(message, Failed):
                raise message.error
            if isinstance(message, Said):
                self._say(message.line)
                continue
            self._workers = message.workers
            if isinstance(message, Answer):
                return message.value
            if progress:
                progress(message.done)
