"""A system that allows too few processes or threads, or too little memory: one line says so."""

import errno
import os
import threading
from multiprocessing import Pipe
from typing import Any

import pytest

from es.config import Config
from es.errors import LimitError, execute
from es.rollouts import pool_process, worker_processes
from es.rollouts.in_process import InProcessPool
from es.rollouts.pool import WorkerPool
from es.sweeps import trial
from tests.fakes import SNAPSHOT, TASKS, recipe, work_without_threads
from tests.processes import run_python

NO_PROCESS = BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
NO_THREAD = RuntimeError("can't start new thread")
SAID = "the system allows no more processes or threads"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (NO_PROCESS, f"error: --workers: {SAID} ([Errno 11] "),
        (NO_THREAD, f"error: --workers: {SAID} (can't start new thread); raise the limit ("),
        (MemoryError(), "error: the system allows too little memory (MemoryError); raise"),
        (
            ImportError("libtorch_cpu.so: failed to map segment from shared object"),
            "error: the system allows too little memory (ImportError: libtorch_cpu.so: failed",
        ),
    ],
)
def test_a_program_that_meets_a_limit_ends_with_one_line(capsys, error, said):
    def fail(interrupts):
        raise error

    assert execute(fail) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(said)


def without_threads(self):
    raise NO_THREAD


def test_a_run_whose_reports_get_no_thread_ends_with_one_line(program, monkeypatch):
    monkeypatch.setattr(threading.Thread, "start", without_threads)
    options = ("--env-name", "CartPole-v1", "--small-net", "--n", 2, "--workers", 0)
    status, _, err = program(*options)
    assert status == 1
    assert err.startswith(f"error: --workers: {SAID} (can't start new thread); ")
    assert err.count("\n") == 1


def test_workers_that_get_no_thread_end_the_run_as_it_starts(pool, monkeypatch):
    said: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr(worker_processes, "work", work_without_threads)
        limited = pool(workers=2, say=said.append)
    with pytest.raises(LimitError, match=SAID):
        limited.evaluate(SNAPSHOT, TASKS)
    assert said == []


def test_later_the_other_workers_go_on(pool, monkeypatch):
    said: list[str] = []
    some = pool(workers=2, say=said.append)
    expected = InProcessPool(recipe()).evaluate(SNAPSHOT, TASKS)
    assert some.evaluate(SNAPSHOT, TASKS) == some.evaluate(SNAPSHOT, TASKS) == expected
    monkeypatch.setattr(worker_processes, "work", work_without_threads)
    some._processes.workers[0].kill()
    some._processes.workers[0].process.join()
    assert some.evaluate(SNAPSHOT, TASKS) == expected
    assert said[0].startswith("Worker 0 died")
    assert not any("Traceback" in line for line in said)


def test_a_pool_that_often_fails_to_start_a_worker_gives_up(pool, monkeypatch):
    """Each time, the fork server may have to be started again, which takes seconds."""
    real, calls = worker_processes.WorkerProcesses._start, 0

    def start(self, number):
        nonlocal calls
        calls += 1
        if calls % 2:
            raise EOFError("unexpected EOF")
        return real(self, number)

    monkeypatch.setattr(worker_processes.WorkerProcesses, "_start", start)
    monkeypatch.setattr(worker_processes, "PAUSE_SECONDS", 0.01)
    said: list[str] = []
    pool(workers=20, say=said.append)
    assert said == ["3 of 20 workers could be started: going on with these."]


def test_a_fork_server_without_processes_prints_nothing():
    program = "import errno, os; import es.rollouts.fork_server\nraise {}"
    silent = run_python(program.format("OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))"))
    assert (silent.returncode, silent.stderr) == (1, "")
    assert "ValueError: mine" in run_python(program.format("ValueError('mine')")).stderr


def test_the_process_of_a_pool_that_gets_no_thread_says_so(monkeypatch):
    unthreaded = (
        "import threading\n"
        'def start(self): raise RuntimeError("can\'t start new thread")\n'
        "threading.Thread.start = start\n"
    )
    monkeypatch.setattr(pool_process, "SERVER", unthreaded + pool_process.SERVER)
    with pool_process.PoolProcess() as process, pytest.raises(LimitError, match=SAID):
        process.open(WorkerPool, recipe(), size=10, members=10, workers=1)


def test_a_trial_that_gets_no_thread_sends_its_error(monkeypatch):
    def end_with_parent(clean_up):
        raise NO_THREAD

    monkeypatch.setattr(trial, "end_with_parent", end_with_parent)
    unused: Any = None
    ours, theirs = Pipe()
    with pytest.raises(LimitError):
        trial.play(unused, None, theirs, 0, unused)
    assert SAID in ours.recv().reason


def test_a_sweep_whose_fork_server_ends_says_so(tmp_path, monkeypatch):
    pytest.importorskip("optuna")
    import optuna

    from es.sweeps.study import Sweep, start_trial

    def start(self):
        raise EOFError

    monkeypatch.setattr("multiprocessing.process.BaseProcess.start", start)
    sweep = Sweep(Config(), {}, tmp_path, 1, 1)
    with pytest.raises(LimitError, match=SAID):
        start_trial(optuna.create_study(), sweep)
