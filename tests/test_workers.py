import contextlib
import errno
import os
import random
import resource
import signal
from multiprocessing import connection

import numpy as np
import psutil
import pytest

from es.errors import RunError, UsageError
from es.rollout import Snapshot, Task
from es.workers import crew, processes
from es.workers.inprocess import InProcessPool
from es.workers.pool import WorkerPool, affordable_workers
from es.workers.queue import take
from tests.conftest import all_gone, wait_until
from tests.fakes import EXITED, KILLED, Hanging, Raising, recipe

SNAPSHOT = Snapshot(np.linspace(0, 1, 10, dtype=np.float32), 0.1)
TASKS = [Task(index, 100 + index // 2, 1 - 2 * (index % 2), index, 1000) for index in range(10)]
UNLUCKY = TASKS[5]._replace(episode_seed=13)


@pytest.fixture
def pool(request):
    opened = []

    def make(made_of=None, workers=2, tasks=10, **more):
        pool = WorkerPool(made_of or recipe(), size=10, members=tasks, workers=workers, **more)
        opened.append(pool)
        return pool

    yield make
    for pool in opened:
        pool.close()


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


def test_the_default_is_one_worker_per_task(pool):
    assert len(pool(workers=None, tasks=7).pids) == 7
    assert len(pool(workers="auto").pids) == processes.cores()


def test_a_pool_goes_on_with_the_workers_that_could_be_started(pool, monkeypatch):
    real, room = connection.Pipe, 2

    def pipe(duplex=True):
        nonlocal room
        if duplex:  # of a worker
            if not room:
                raise OSError(errno.EMFILE, "Too many open files")
            room -= 1
        return real(duplex)

    monkeypatch.setattr(connection, "Pipe", pipe)
    monkeypatch.setattr(crew, "PAUSE_SECONDS", 0.01)
    said: list[str] = []
    few = pool(workers=4, say=said.append)
    assert said.pop() == "2 of 4 workers could be started: going on with these."
    expected = InProcessPool(recipe()).evaluate(SNAPSHOT, TASKS)
    assert few.evaluate(SNAPSHOT, TASKS) == expected
    victim = few.pids[:1]
    os.kill(victim[0], signal.SIGKILL)
    wait_until(lambda: all_gone(victim))
    assert few.evaluate(SNAPSHOT, TASKS) == expected
    assert "going on with 1" in said.pop()
    room = 1
    assert few.evaluate(SNAPSHOT, TASKS) == expected
    assert len(few.pids) == 2
    with pytest.raises(RunError, match="Too many open files"):
        pool(workers=1)


def test_far_more_results_than_a_pipe_holds_are_drained(pool):
    tasks = [TASKS[index % 10]._replace(index=index) for index in range(5000)]
    done: list[int] = []
    results = pool().evaluate(SNAPSHOT, tasks, done.append)
    assert [result.index for result in results] == list(range(5000))
    assert done == sorted(done)
    assert done[-1] == 5000


def test_an_exception_of_the_environment_comes_with_task_and_traceback(pool):
    failing = pool(recipe(Raising))
    with pytest.raises(RunError, match=r"(?s)Task\(index=5.*ValueError: unlucky"):
        failing.evaluate(SNAPSHOT, [*TASKS[:5], UNLUCKY])


def test_in_this_process_it_does_too():
    with pytest.raises(RunError, match=r"(?s)Task\(index=5.*ValueError: unlucky"):
        InProcessPool(recipe(Raising)).evaluate(SNAPSHOT, [*TASKS[:5], UNLUCKY])


@pytest.mark.parametrize(
    ("made_of", "cause"), [(KILLED, "signal SIGKILL"), (EXITED, "exit code 3")]
)
def test_a_task_that_kills_three_workers_ends_the_run_with_its_cause(pool, made_of, cause):
    said: list[str] = []
    dying = pool(made_of, say=said.append)
    with pytest.raises(RunError, match=rf"Task\(index=5.*failed 3 times.*died \({cause}\)"):
        dying.evaluate(SNAPSHOT, [*TASKS[:5], UNLUCKY])
    assert len(said) == 3


@pytest.mark.parametrize("workers", [1, 3])
def test_workers_killed_again_and_again_change_no_result(pool, workers):
    """Also while they start, and with the fork server; nothing of an earlier batch is taken."""
    said: list[str] = []
    killed = pool(recipe(length=20, seconds=0.001), workers=workers, say=said.append)
    steady = InProcessPool(recipe(length=20))
    chance = random.Random(1)
    for batch in range(7):
        tasks = [TASKS[k % 10]._replace(index=k, episode_seed=k + batch) for k in range(30)]
        helpers = [child.pid for child in psutil.Process().children()] if batch % 3 == 0 else []
        victims = [*helpers, chance.choice(killed.pids)]
        moment = chance.randrange(20)

        def strike(done: int, moment: int = moment, victims: list[int] = victims) -> None:
            while done > moment and victims:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(victims.pop(), signal.SIGKILL)

        assert killed.evaluate(SNAPSHOT, tasks, strike) == steady.evaluate(SNAPSHOT, tasks)
    assert len(said) >= 3
    assert all("signal SIGKILL" in line or "fork server" in line for line in said)


def test_a_task_that_died_with_its_worker_unnoticed_is_played(pool):
    """Just after taking it, before any note of that: here it is taken out of the queue."""
    taken: list[object] = []
    robbed: WorkerPool = pool(workers=1, say=lambda line: taken.append(take(robbed._queue.reader)))
    robbed.evaluate(SNAPSHOT, TASKS)
    os.kill(robbed.pids[0], signal.SIGKILL)
    assert robbed.evaluate(SNAPSHOT, TASKS) == InProcessPool(recipe()).evaluate(SNAPSHOT, TASKS)
    assert len(taken) == 1


def test_a_result_of_an_earlier_batch_is_not_taken(pool):
    """What was played a second time may come when the next batch is under way."""
    late = pool(workers=1)
    late.evaluate(SNAPSHOT, TASKS)
    late._queue.put(1, [TASKS[9]])
    tasks = [task._replace(episode_seed=50) for task in TASKS]
    assert late.evaluate(SNAPSHOT, tasks) == InProcessPool(recipe()).evaluate(SNAPSHOT, tasks)


def test_a_worker_that_hangs_is_replaced(pool, tmp_path):
    said: list[str] = []
    tasks = [*TASKS[:5], UNLUCKY]
    hanging = pool(recipe(Hanging, str(tmp_path / "file")), timeout=0.5, say=said.append)
    assert hanging.evaluate(SNAPSHOT, tasks) == InProcessPool(recipe()).evaluate(SNAPSHOT, tasks)
    (line,) = said
    assert "took over 0.5 s (--rollout-timeout)" in line
    assert "Task(index=5" in line


def test_an_episode_that_always_hangs_ends_the_run(pool):
    hanging = pool(recipe(Hanging), timeout=0.2)
    with pytest.raises(RunError, match=r"Task\(index=5.*failed 3 times.*--rollout-timeout"):
        hanging.evaluate(SNAPSHOT, [*TASKS[:5], UNLUCKY])


def test_what_raises_once_is_played_again_in_this_process(tmp_path):
    tasks = [*TASKS[:5], UNLUCKY]
    moody = InProcessPool(recipe(Raising, str(tmp_path / "file")))
    assert moody.evaluate(SNAPSHOT, tasks) == InProcessPool(recipe()).evaluate(SNAPSHOT, tasks)


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
    assert affordable_workers(41, bytes_each=10, bytes_free=820) == 41
    assert affordable_workers(41, bytes_each=10, bytes_free=819) == min(41, processes.cores())
    memory = psutil.virtual_memory()._replace(available=10)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)
    said: list[str] = []
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
