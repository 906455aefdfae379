"""Write files in order in one background thread, and again if the system refuses one."""

import queue
import threading
from collections.abc import Callable, Mapping

from es.errors import RunError

Job = Callable[[], object]
RETRY_SECONDS = 5.0
MOST_WAITING = 16  # files that have failed, so that a full disk does not become a full memory


class BackgroundWriter:
    """Run jobs in order, each under the name of what it writes. At most one batch of them waits.

    If the system refuses a job (OSError: a full disk, a limit, a read-only directory), call `warn`
    once, and try again with later jobs and every few seconds, until it succeeds or a newer job of
    that name replaces it. precious: names that are never given up.
    """

    def __init__(self, warn: Callable[[str], None], *, precious: tuple[str, ...] = ()) -> None:
        self._warn, self._precious = warn, precious
        self._batches: queue.Queue[Mapping[str, Job] | None] = queue.Queue(maxsize=1)
        self._waiting: dict[str, Job] = {}
        self._reasons: dict[str, str] = {}  # why they wait
        self._given_up: dict[str, str] = {}
        self._told: set[str] = set()  # reasons, since nothing waited
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._thread.start()

    def submit(self, jobs: Mapping[str, Job]) -> None:
        """Queue jobs, or wait while a batch is queued; raise RunError if an earlier job failed."""
        self._raise()
        self._batches.put(jobs)

    def close(self) -> dict[str, str]:
        """Wait for all jobs; return why files could not be written, by name.

        Raise RunError if a job failed otherwise.
        """
        if self._thread.is_alive():
            self._batches.put(None)
            self._thread.join()
        self._raise()
        return self._given_up | self._reasons

    def _raise(self) -> None:
        if self._error is not None:
            error, self._error = self._error, None
            raise RunError(f"cannot write the run's files: {error}") from error

    def _run(self) -> None:
        jobs: Mapping[str, Job] | None = {}
        while jobs is not None:
            try:
                jobs = self._batches.get(timeout=RETRY_SECONDS if self._waiting else None)
            except queue.Empty:
                jobs = {}
            try:
                self._write(jobs or {})
            except Exception as error:
                self._error = error

    def _write(self, jobs: Mapping[str, Job]) -> None:
        for name, job in jobs.items():
            self._waiting.pop(name, None)  # the newer one goes to the end
            self._waiting[name] = job
        for name, job in list(self._waiting.items()):
            try:
                job()
            except OSError as error:
                self._note(name, error.strerror or str(error))
            else:
                del self._waiting[name]
                self._reasons.pop(name, None)
        for name in [name for name in self._waiting if name not in self._precious][:-MOST_WAITING]:
            del self._waiting[name]
            self._given_up[name] = self._reasons.pop(name)
            self._warn(f"{name} is given up, since too many files wait to be written")
        if self._told and not self._waiting:
            self._told.clear()
            self._warn("what was waiting to be written is written now")

    def _note(self, name: str, reason: str) -> None:
        if reason not in self._told:  # many files may fail for the same reason
            self._warn(f"{name} cannot be written ({reason}): the run goes on, and tries it again")
        self._told.add(reason)
        self._reasons[name] = reason
