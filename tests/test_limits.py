"""A system that allows too few processes or threads, or too little memory: one line says so."""

import errno
import os

import pytest

from es.errors import LimitError, execute
from es.rollouts import pool as pool_module
from es.rollouts.pool import WorkerPool
from tests.fakes import recipe

NO_PROCESS = BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
NO_THREAD = RuntimeError("can't start new thread")
SAID = "the system allows no more processes or threads"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (NO_PROCESS, f"error: --workers: {SAID} ([Errno 11] "),
        (NO_THREAD, f"error: --workers: {SAID} (can't start new thread). Raise the limit ("),
        (MemoryError("99 GiB"), "error: there is too little memory (MemoryError: 99 GiB)"),
    ],
)
def test_a_program_that_meets_a_limit_ends_with_one_line(capsys, error, said):
    def fail(interrupts):
        raise error

    assert execute(fail) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(said)


def test_a_worker_that_cannot_be_started_ends_the_run(monkeypatch):
    def start(self):
        raise EOFError("unexpected EOF")

    monkeypatch.setattr("multiprocessing.process.BaseProcess.start", start)
    monkeypatch.setattr(pool_module, "PAUSE_SECONDS", 0.01)
    with pytest.raises(LimitError, match=SAID):
        WorkerPool(recipe(), workers=2, size=10)
