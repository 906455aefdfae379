"""The tasks of a batch on their way to whichever worker is free first."""

from __future__ import annotations

import os
import select
import struct
import sys
from collections.abc import Sequence
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext

from es.rollout import Task

# A task's five numbers. 64 bytes divide a pipe's pages: no reader ever gets a part of a record.
RECORD = struct.Struct("<5q24x")
WRITE = select.PIPE_BUF // RECORD.size * RECORD.size  # what a pipe takes as one piece


class TaskQueue:
    """A pipe that all workers read, one record at a time.

    The kernel hands tasks out, so that the next one costs no answer of the master's, and none is
    lost with a worker that dies before taking one.
    """

    def __init__(self, context: BaseContext) -> None:
        self.reader, self._writer = context.Pipe(duplex=False)
        os.set_blocking(self._writer.fileno(), False)
        self._waiting = memoryview(b"")

    def fileno(self) -> int:
        """The file to wait for: writable when `flush` can go on."""
        return self._writer.fileno()

    def put(self, tasks: Sequence[Task]) -> None:
        """Lets tasks wait for `flush`."""
        records = [RECORD.pack(*task[:-1], min(task.cap, sys.maxsize)) for task in tasks]
        self._waiting = memoryview(b"".join(records))

    def flush(self) -> bool:
        """Hands out as many tasks as the pipe takes; whether that was all."""
        try:
            while self._waiting:
                written = os.write(self._writer.fileno(), self._waiting[:WRITE])
                self._waiting = self._waiting[written:]
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        """Takes back the tasks that nobody took; free workers then see the end."""
        self._writer.close()
        if not self.reader.closed:
            while self.reader.poll() and os.read(self.reader.fileno(), WRITE):
                pass
        self.reader.close()


def take(reader: Connection) -> Task | None:
    """The next task; None when the queue is closed. Waits for one or the other."""
    record = os.read(reader.fileno(), RECORD.size)
    return Task(*RECORD.unpack(record)) if record else None
