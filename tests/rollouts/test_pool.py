import os
import resource
import signal
from types import SimpleNamespace

import psutil
import pytest
from es.rollouts.in_process import InProcessPool
from es.rollouts.rollout import Snapshot
from es.rollouts.worker_processes import affordable_workers

from es.errors import RunError, UsageError
from es.rollouts import processes
from es.rollouts.pool import WorkerPool
from tests.fakes import SNAPSHOT, TASKS, recipe
from tests.processes import all_gone


def test_any_number_of_workers_gives_the_results_of_this_process(pool):
    expected = InProcessPool(recipe()).evaluate(SNAPSHOT, TASKS)
    assert [result.index for result in expected] == list(range(10))
    for workers in (1, 3, None):
        assert pool(workers=workers).evaluate(SNAPSHOT, TASKS) == expected


def test_workers_are_kept_and_play_the_snapshot_of_the_moment(pool):
    kept = pool()
    first = kept.evaluate(SNAPSHOT, TASKS)
    pids = kept.pids
    second = kept.evaluate(Snapshot(SNAPSHOT.theta + 1, 0.1), TASKS)
    assert kept.pids == pids
    for before, after in zip(first, second, strict=True):
        assert after.episode_return == pytest.approx(before.episode_return + 5 * 10, rel=1e-5)


def test_what_is_prepared_is_played_once_with_the_snapshot_of_that_moment(pool):
    snapshot = Snapshot(SNAPSHOT.theta.copy(), SNAPSHOT.sigma)
    expected = InProcessPool(recipe()).evaluate(snapshot, TASKS)
    ahead = pool()
    ahead.prepare(snapshot, TASKS)
    snapshot.theta[:] = 9
    assert ahead.evaluate(snapshot, TASKS) == expected
    assert ahead.evaluate(SNAPSHOT, TASKS) == expected


def test_tasks_that_were_prepared_for_nothing_are_given_up(pool):
    surprised = pool()
    surprised.prepare(SNAPSHOT, [TASKS[0]._replace(index=index) for index in range(3000)])
    tasks = [task._replace(episode_seed=50) for task in TASKS]
    assert surprised.evaluate(SNAPSHOT, tasks) == InProcessPool(recipe()).evaluate(SNAPSHOT, tasks)


def test_the_default_is_one_worker_per_task(pool):
    assert len(pool(workers=None, tasks=7).pids) == 7
    assert len(pool(workers="auto").pids) == processes.cores()


def test_far_more_results_than_a_pipe_holds_are_drained(pool):
    tasks = [TASKS[index % 10]._replace(index=index) for index in range(5000)]
    done: list[int] = []
    results = pool().evaluate(SNAPSHOT, tasks, done.append)
    assert [result.index for result in results] == list(range(5000))
    assert done == sorted(done)
    assert done[-1] == 5000


def test_the_signals_of_the_terminal_do_not_reach_workers(pool):
    steady = pool(recipe(seconds=0.01))  # slow enough for both workers to take part
    expected = steady.evaluate(SNAPSHOT, TASKS)
    for number in (signal.SIGINT, signal.SIGHUP):
        for pid in steady.pids:
            os.kill(pid, number)
    assert steady.evaluate(SNAPSHOT, TASKS) == expected


def test_an_environment_that_cannot_be_built_is_an_error(pool):
    with pytest.raises(RunError, match="unexpected keyword argument 'nonsense'"):
        pool(recipe(nonsense=1)).evaluate(SNAPSHOT, TASKS)


def test_close_lets_idle_workers_close_their_environment(pool, tmp_path):
    log = tmp_path / "log"
    idle = pool(recipe(log=str(log), seconds=0.01))  # slow enough for both to take part
    idle.evaluate(SNAPSHOT, TASKS)
    pids = idle.pids
    idle.close()
    assert log.read_text() == "closed\n" * 2
    assert all_gone(pids)


def test_close_does_not_wait_for_a_long_episode(pool):
    """The episodes under way would last a quarter of an hour."""
    busy = pool(recipe(length=1000, seconds=1.0))
    tasks = [TASKS[index % 10]._replace(index=index) for index in range(3000)]
    pids = busy.pids

    def ring(number, frame):
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    try:
        with pytest.raises(TimeoutError):
            busy.evaluate(SNAPSHOT, tasks)
    finally:
        signal.signal(signal.SIGALRM, before)
    busy.close()
    assert all_gone(pids)


def test_any_cap_can_be_asked_for(pool):
    endless = [task._replace(cap=10**30) for task in TASKS]
    assert pool().evaluate(SNAPSHOT, endless) == pool(workers=1).evaluate(SNAPSHOT, TASKS)


def test_workers_have_one_thread_for_numbers(pool):
    one = pool(workers=1)
    one.evaluate(SNAPSHOT, TASKS)
    environment = psutil.Process(one.pids[0]).environ()
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        assert environment[variable] == "1"


def test_workers_that_would_take_over_half_of_the_memory_become_one_per_core(pool, monkeypatch):
    said: list[str] = []
    memory = psutil.virtual_memory()._replace(available=820)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)
    with monkeypatch.context() as patch:
        patch.setattr(psutil.Process, "memory_full_info", lambda self: SimpleNamespace(uss=10))
        assert affordable_workers(41, os.getpid(), said.append) == 41
        memory = memory._replace(available=819)
        assert affordable_workers(41, os.getpid(), said.append) == min(41, processes.cores())
    assert "memory" in said.pop()
    few = WorkerPool(recipe(), size=10, members=41, workers=None, say=said.append)
    try:
        assert len(few.pids) == processes.cores()
        assert few.evaluate(SNAPSHOT, TASKS) == InProcessPool(recipe()).evaluate(SNAPSHOT, TASKS)
    finally:
        few.close()
    assert len(said) == 1
    assert "memory" in said[0]


def test_more_files_than_the_system_allows_is_an_error():
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    processes.allow_open_files(64)
    with pytest.raises(UsageError, match="--workers"):
        processes.allow_open_files(2**62 if hard == resource.RLIM_INFINITY else hard + 1)


def test_memory_that_cannot_be_shared_is_an_error_that_names_the_flag():
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10 * 1024, hard))
    try:
        with pytest.raises(RunError, match=r"--workers: .*File too large.*--workers 0"):
            WorkerPool(recipe(), size=10_000_000, members=1, workers=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
