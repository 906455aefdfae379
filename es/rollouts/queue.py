"""The queue of tasks, from which each free worker takes the next."""

import os
import select
import struct
import sys
from collections.abc import Sequence
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext

from es.rollouts.rollout import Task

# A batch's number and a task's five. Since 64 divides a pipe's pages, records are read whole.
RECORD = struct.Struct("<6q16x")
WRITE = select.PIPE_BUF // RECORD.size * RECORD.size  # bytes of an atomic write


class TaskQueue:
    """A pipe that all workers read, one record at a time.

    A worker need not wait for the master to get its next task, and takes no tasks in advance that
    would be lost if it died.
    """

    def __init__(self, context: BaseContext) -> None:
        self.reader, self._writer = context.Pipe(duplex=False)
        os.set_blocking(self._writer.fileno(), False)
        self._waiting = memoryview(b"")

    def fileno(self) -> int:
        """Return the file that is writable when `put` can go on."""
        return self._writer.fileno()

    def put(self, batch: int, tasks: Sequence[Task] = ()) -> bool:
        """Write these tasks and those that still wait; return whether the pipe took them all."""
        records = [RECORD.pack(batch, *task[:-1], min(task.cap, sys.maxsize)) for task in tasks]
        self._waiting = memoryview(bytes(self._waiting) + b"".join(records))
        try:
            while self._waiting:
                written = os.write(self._writer.fileno(), self._waiting[:WRITE])
                self._waiting = self._waiting[written:]
        except BlockingIOError:
            return False
        return True

    def clear(self) -> None:
        """Discard the tasks that wait for room in the pipe; workers take those that are in it."""
        self._waiting = memoryview(b"")

    def empty(self) -> bool:
        """Return whether all tasks were taken."""
        return not self._waiting and not self.reader.poll()

    def close(self) -> None:
        """Discard the tasks that nobody took; free workers then read the end of the pipe."""
        self._writer.close()
        if not self.reader.closed:
            while self.reader.poll() and os.read(self.reader.fileno(), WRITE):
                pass
        self.reader.close()


def take(reader: Connection, most: int = 1) -> list[tuple[int, Task]]:
    """Wait for tasks and return the next ones, `most` at most, with their batches.

    Return none once the queue is closed.
    """
    records = RECORD.iter_unpack(os.read(reader.fileno(), most * RECORD.size))
    return [(batch, Task(*task)) for batch, *task in records]
