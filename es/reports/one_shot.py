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
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

import psutil

from es.errors import in_one_line
from es.rollouts.processes import end_group, importing_variables

LOWEST, USUAL = "lowest", "usual"  # priorities, the first argument of the process
SAMPLE_SECONDS = 0.2


class OneShot(subprocess.Popen[bytes]):
    """A process that runs one module. It ends with this one, or when its standard input is closed.

    imports: modules to import at once. priority: LOWEST, or USUAL while the run waits for it. Raise
    OSError if it cannot be started.
    """

    def __init__(self, imports: tuple[str, ...] = (), priority: str = LOWEST) -> None:
        # Not a pipe: a process that the module has started may live on and keep it open.
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `close`)
        super().__init__(
            # -P: do not import from the current folder, where a user's files may have our names.
            [sys.executable, "-P", "-m", __name__, priority, *imports],
            # Matplotlib reads the last one. A notebook's value may name what is not installed here.
            env=os.environ | importing_variables() | {"MPLBACKEND": "agg"},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            start_new_session=True,  # Ctrl-C in the terminal is for the master
        )

    def run(self, module: str, *arguments: str) -> None:
        """Run `python -m MODULE ARGUMENTS` in it; raise OSError."""
        assert self.stdin is not None
        self.stdin.write(json.dumps([module, *arguments]).encode() + b"\n")
        self.stdin.flush()

    def failure(self) -> str:
        """Wait for its end; return the last line of its errors if it has failed, or else ""."""
        if not (status := self.wait()):
            return ""
        self._errors.seek(0)
        words = self._errors.read().decode(errors="replace").strip().rpartition("\n")[2]
        return in_one_line(words) or f"it ended with status {status}"

    def kill(self) -> None:
        """End it, if it has not ended yet, and what it has started."""
        end_group(self.pid)
        super().kill()

    def close(self) -> None:
        """End it, if it has not ended yet."""
        self.kill()
        self.communicate()  # closes the pipe, too
        self._errors.close()

    def hasten(self) -> bool:
        """Give it and its children the usual priority; return False if the system forbids it."""
        if self.poll() is not None:
            return True
        usual = os.getpriority(os.PRIO_PROCESS, 0)
        try:
            if os.getpriority(os.PRIO_PROCESS, self.pid) > usual:
                os.setpriority(os.PRIO_PGRP, self.pid, usual)
            share = _share_of(self.pid)
            if share.exists() and not share.read_text().endswith(" nice 0\n"):
                share.write_text("0")
        except PermissionError:
            return False
        except OSError:  # it has ended, or Linux wants time between two changes of a share
            pass
        return True


class Idle:
    """Measures for how long a process and its children have not used the processor."""

    def __init__(self) -> None:
        self._used = 0, 0.0
        self._since = self._next = time.monotonic()

    def seconds(self, process: OneShot) -> float:
        """Return it for this process, of which several may follow each other."""
        now = time.monotonic()
        if now >= self._next or process.pid != self._used[0]:
            self._next = now + SAMPLE_SECONDS
            used = process.pid, _processor_seconds(process.pid)
            if used != self._used:
                self._used, self._since = used, now
        return now - self._since


def _processor_seconds(pid: int) -> float:
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        tree = (process, *process.children(recursive=True))
        return sum(sum(each.cpu_times()[:4]) for each in tree)  # with children that have ended
    return 0.0


_prepared: list[OneShot] = []


def prepare(*imports: str) -> None:
    """Start a process that imports these modules, for the next `start`; raise OSError."""
    _prepared.append(OneShot(imports))


@atexit.register
def discard() -> None:
    """End the processes that were prepared and not used."""
    while _prepared:
        _prepared.pop().close()


def start(module: str, *arguments: str, priority: str = LOWEST) -> OneShot:
    """Start `python -m MODULE ARGUMENTS`, in the prepared process if there is one; raise OSError.

    A process that was prepared is not used if it cannot be given the priority.
    """
    usable = _prepared and _prepared[-1].poll() is None
    if usable and (priority == LOWEST or _prepared[-1].hasten()):
        process = _prepared.pop()
    else:
        process = OneShot(priority=priority)
    process.run(module, *arguments)
    return process


def _share_of(pid: int | str) -> Path:
    """Return the file of a session's share: an equal one for each, whatever its niceness."""
    return Path(f"/proc/{pid}/autogroup")


def _end_with_master() -> None:
    os.read(0, 1)  # the master writes no more, so this returns when the pipe is closed
    end_group(os.getpid())  # with what an environment has started


if __name__ == "__main__":
    if sys.argv[1] == LOWEST:
        os.nice(19)
        with suppress(OSError):
            _share_of("self").write_text("19")
    for name in sys.argv[2:]:
        importlib.import_module(name)
    if line := sys.stdin.buffer.readline():
        threading.Thread(target=_end_with_master, daemon=True).start()
        sys.argv[:] = json.loads(line)
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
