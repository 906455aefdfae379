"""The tasks of a batch on their way to whichever worker is free first."""

from __future__ import annotations

import os
import select
import struct
import sys
from collections.abc import Sequence
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext

from es.rollouts.rollout import Task

# A batch and a task's five numbers. 64 bytes divide a pipe's pages: no reader ever gets a part of a
# record.
RECORD = struct.Struct("<6q16x")
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
        """The file to wait for: writable when `put` can go on."""
        return self._writer.fileno()

    def put(self, batch: int, tasks: Sequence[Task] = ()) -> bool:
        """Hands out tasks, and those that still wait; whether the pipe took them all.

        batch: the number that comes back with their results.
        """
        records = [RECORD.pack(batch, *task[:-1], min(task.cap, sys.maxsize)) for task in tasks]
        self._waiting = memoryview(bytes(self._waiting) + b"".join(records))
        try:
            while self._waiting:
                written = os.write(self._writer.fileno(), self._waiting[:WRITE])
                self._waiting = self._waiting[written:]
        except BlockingIOError:
            return False
        return True

    def empty(self) -> bool:
        """Whether all tasks were taken."""
        return not self._waiting and not self.reader.poll()

    def close(self) -> None:
        """Takes back the tasks that nobody took; free workers then see the end."""
        self._writer.close()
        if not self.reader.closed:
            while self.reader.poll() and os.read(self.reader.fileno(), WRITE):
                pass
        self.reader.close()


def take(reader: Connection) -> tuple[int, Task] | None:
    """The next task with its batch; None when the queue is closed. Waits for one or the other."""
    record = os.read(reader.fileno(), RECORD.size)
    if not record:
        return None
    batch, *task = RECORD.unpack(record)
    return batch, Task(*task)
