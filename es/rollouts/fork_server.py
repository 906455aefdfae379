"""Set up the fork server, which alone imports this module.

It deletes its socket and the folder of that when it ends. The master does so itself, unless it was
killed, or interrupted while it started. The fork server ends after it and all workers.

It prints no traceback where the system allows too few processes or too little memory: it ends, and
the master starts it again, or says so.
"""

import atexit
import os
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from es.errors import no_more_memory, no_more_processes
from es.rollouts.processes import MASTER


def _delete(folder: Path, server: int, master: int) -> None:
    if os.getpid() != server or os.getppid() == master:  # a process forked from it; not yet needed
        return
    with suppress(OSError):
        for socket in folder.glob("listener-*"):
            socket.unlink()
        folder.rmdir()


def _report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if not (no_more_processes(error) or no_more_memory(error)):
        sys.__excepthook__(kind, error, trace)


sys.excepthook = _report
if words := os.environ.pop(MASTER, ""):
    pid, _, path = words.partition(" ")
    atexit.register(_delete, Path(path), os.getpid(), int(pid))
