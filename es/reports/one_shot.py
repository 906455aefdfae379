"""Run a module of the project beside a run, in a process of its own at the lowest priority.

That process executes this file, which runs the module as `python -m` does.
"""

import os
import runpy
import subprocess
import sys
import threading
from typing import IO

from es.rollouts.processes import importing_variables


def start(
    module: str, *arguments: str, errors: int | IO[bytes] = subprocess.DEVNULL
) -> subprocess.Popen[bytes]:
    """Start `python -m MODULE ARGUMENTS`; raise OSError.

    The process ends with this one, or when its standard input is closed. errors: where its
    standard error goes.
    """
    return subprocess.Popen(
        # -P: do not import from the current folder, where a user's files may have the same names.
        [sys.executable, "-P", "-m", __name__, module, *arguments],
        env=os.environ | importing_variables(),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=errors,
        start_new_session=True,  # Ctrl-C in the terminal is for the master
    )


def _end_with_master() -> None:
    os.read(0, 1)  # the master writes nothing, so this returns when the pipe is closed
    os._exit(1)


if __name__ == "__main__":
    os.nice(19)
    threading.Thread(target=_end_with_master, daemon=True).start()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
