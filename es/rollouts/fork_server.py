"""Delete the fork server's socket and its folder when it ends; it alone imports this module.

The master does so itself, unless it was killed, or interrupted while it started. The fork server
ends after it and all workers.
"""

import atexit
import os
from contextlib import suppress
from pathlib import Path

from es.rollouts.processes import MASTER


def _delete(folder: Path, server: int, master: int) -> None:
    if os.getpid() != server or os.getppid() == master:  # a process forked from it; not yet needed
        return
    with suppress(OSError):
        for socket in folder.glob("listener-*"):
            socket.unlink()
        folder.rmdir()


if words := os.environ.pop(MASTER, ""):
    pid, _, path = words.partition(" ")
    atexit.register(_delete, Path(path), os.getpid(), int(pid))
