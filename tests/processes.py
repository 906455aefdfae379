"""Programs in processes of their own, and waiting for what they do."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parent.parent


def run_python(
    program: str, cwd: Path = ROOT, **variables: str
) -> subprocess.CompletedProcess[str]:
    """What a program does in an interpreter of its own, with the project in `cwd` at hand."""
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=cwd,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=False,
    )


def output(*command: object, cwd: Path | None = None) -> str:
    """What a command prints, which must end well and say nothing on standard error."""
    done = subprocess.run(
        [*map(str, command)], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return done.stdout


def descendants(pid: int) -> list[int]:
    """The living processes that a process started, directly or not."""
    try:
        return [child.pid for child in psutil.Process(pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def wait_until(condition: Callable[[], Any], seconds: float = 240) -> None:
    """Fails when the condition does not come true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def all_gone(pids: Sequence[int]) -> bool:
    """Whether none of the processes runs any more (a zombie does not run)."""
    for pid in pids:
        try:
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                return False
        except psutil.NoSuchProcess:
            pass
    return True
