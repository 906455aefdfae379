"""A process that works for a run beside it, woken by a line on its standard input."""

from __future__ import annotations

import contextlib
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil

from es.rollouts.processes import importing_variables

END = b"end\n"  # the last line


class HelperProcess:
    """The master's end of `python -m MODULE ARGUMENTS`; it is started when it is first woken.

    errors: the file that its standard error is added to.
    """

    def __init__(self, module: str, arguments: Sequence[str], errors: Path | None = None) -> None:
        # Not from the current folder, where a user's own files may have the same names.
        self._command = [sys.executable, "-P", "-m", module, *arguments]
        self._errors = errors
        self._process: subprocess.Popen[bytes] | None = None

    def wake(self) -> None:
        """Has it work, once more if it is busy; one that was killed is replaced."""
        if self._process is not None and self._process.poll() is not None:
            self._close_pipe(self._process)
            self._process = None
        with contextlib.suppress(OSError):  # what it makes is no reason to end a run
            self._process = self._process or self._start()
            self._send(self._process, b"\n")

    @property
    def ending(self) -> int | None:
        """Its exit status, as of subprocess.Popen, once it has ended."""
        return self._process.returncode if self._process else None

    def close(self, patience: Callable[[], float]) -> None:
        """Waits until it is done; patience: for how many seconds at most."""
        if self._process is None:
            return
        with contextlib.suppress(OSError):
            self._send(self._process, END)
        start = time.monotonic()
        while self._process.poll() is None and time.monotonic() - start < patience():
            time.sleep(0.01)
        with contextlib.suppress(psutil.Error):
            for child in psutil.Process(self._process.pid).children(recursive=True):
                child.kill()
        self._process.kill()
        self._process.wait()
        self._close_pipe(self._process)

    def _start(self) -> subprocess.Popen[bytes]:
        with contextlib.ExitStack() as stack:
            errors = stack.enter_context(self._errors.open("ab")) if self._errors else None
            return subprocess.Popen(
                self._command,
                env=os.environ | importing_variables(),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=errors or subprocess.DEVNULL,
                start_new_session=True,  # the terminal's Ctrl-C is for the master
            )

    @staticmethod
    def _send(process: subprocess.Popen[bytes], line: bytes) -> None:
        assert process.stdin is not None
        process.stdin.write(line)
        process.stdin.flush()

    @staticmethod
    def _close_pipe(process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        with contextlib.suppress(OSError):  # of lines that it has not read
            process.stdin.close()


def woken() -> Iterator[None]:
    """The helper's end: yields when it is woken, once for what came in meanwhile, until the end.

    If the master dies, however late, the process ends at once.
    """
    lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(lines,), daemon=True).start()
    ended = False
    while not ended:
        waiting = [lines.get()]
        while not lines.empty():
            waiting.append(lines.get())
        ended = END in waiting
        if waiting != [END]:
            yield


def _listen(lines: queue.SimpleQueue[bytes]) -> None:
    # Not from sys.stdin, whose lock the interpreter takes when the process comes to its end.
    with open(0, "rb", closefd=False) as orders:
        for line in orders:
            lines.put(line)
    os._exit(1)  # the master keeps the pipe open for as long as it waits
