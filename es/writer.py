"""Writing off the critical path: jobs run in order in one background thread, none is skipped."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from es.errors import RunError

Job = Callable[[], object]


class BackgroundWriter:
    """Runs jobs in order. At most one waits: who submits the next waits for the disk."""

    def __init__(self) -> None:
        self._jobs: queue.Queue[Job | None] = queue.Queue(maxsize=1)
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._thread.start()

    def submit(self, job: Job) -> None:
        """Queues a job. Raises RunError when an earlier one failed."""
        self._raise()
        self._jobs.put(job)

    def close(self) -> None:
        """Waits for all jobs. Raises RunError when one failed."""
        if self._thread.is_alive():
            self._jobs.put(None)
            self._thread.join()
        self._raise()

    def _raise(self) -> None:
        if self._error is not None:
            error, self._error = self._error, None
            raise RunError(f"cannot write the run's files: {error}") from error

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except Exception as error:
                self._error = error
