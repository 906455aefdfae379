"""Run a module of the project beside a run, in a process of its own at the lowest priority.

That process executes this file: it imports what its arguments name, reads the module and its
arguments, a line of JSON, from its standard input, and runs that as `python -m` does.
"""

import atexit
import importlib
import json
import os
import runpy
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import IO

from es.rollouts.processes import end_group, importing_variables

_prepared: list[subprocess.Popen[bytes]] = []


def prepare(*imports: str) -> None:
    """Start a process that imports these modules, for the next `start`; raise OSError."""
    _prepared.append(_start(imports))


@atexit.register
def discard() -> None:
    """End the processes that were prepared and not used."""
    while _prepared:
        process = _prepared.pop()
        process.kill()
        process.communicate()  # closes the pipe, too


def start(
    module: str, *arguments: str, errors: int | IO[bytes] = subprocess.DEVNULL
) -> subprocess.Popen[bytes]:
    """Start `python -m MODULE ARGUMENTS`, in the prepared process if there is one; raise OSError.

    The process ends with this one, or when its standard input is closed. errors: where its
    standard error goes.
    """
    usable = _prepared and errors == subprocess.DEVNULL and _prepared[-1].poll() is None
    process = _prepared.pop() if usable else _start((), errors)
    assert process.stdin is not None
    process.stdin.write(json.dumps([module, *arguments]).encode() + b"\n")
    process.stdin.flush()
    return process


def _start(
    imports: tuple[str, ...], errors: int | IO[bytes] = subprocess.DEVNULL
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        # -P: do not import from the current folder, where a user's files may have the same names.
        [sys.executable, "-P", "-m", __name__, *imports],
        # Matplotlib reads the last one. A notebook's value may name what is not installed here.
        env=os.environ | importing_variables() | {"MPLBACKEND": "agg"},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=errors,
        start_new_session=True,  # Ctrl-C in the terminal is for the master
    )


def _end_with_master() -> None:
    os.read(0, 1)  # the master writes no more, so this returns when the pipe is closed
    end_group(os.getpid())  # with what an environment has started


if __name__ == "__main__":
    os.nice(19)
    with suppress(OSError):  # Linux gives each session an equal share, whatever its niceness
        Path("/proc/self/autogroup").write_text("19")
    for name in sys.argv[1:]:
        importlib.import_module(name)
    if line := sys.stdin.buffer.readline():
        threading.Thread(target=_end_with_master, daemon=True).start()
        sys.argv[:] = json.loads(line)
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
