"""Workers that die, hang, or cannot be started."""

import contextlib
import errno
import os
import random
import signal
from multiprocessing import connection

import psutil
import pytest
from es.rollouts.in_process import InProcessPool
from es.rollouts.queue import take

from es.errors import RunError
from es.rollouts import worker_processes as processes
from es.rollouts.pool import WorkerPool
from tests.fakes import (
    EXITED,
    KILLED,
    SNAPSHOT,
    TASKS,
    UNLUCKY,
    Hanging,
    Raising,
    Refusing,
    recipe,
)
from tests.processes import wait_until


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
    monkeypatch.setattr(processes, "PAUSE_SECONDS", 0.01)
    said: list[str] = []
    few = pool(workers=4, say=said.append)
    assert said.pop() == "2 of 4 workers could be started: going on with these."
    expected = InProcessPool(recipe()).evaluate(SNAPSHOT, TASKS)
    assert few.evaluate(SNAPSHOT, TASKS) == expected
    os.kill(few.pids[0], signal.SIGKILL)
    wait_until(few._processes.workers[0].connection.poll)  # its threads may live a little longer
    assert few.evaluate(SNAPSHOT, TASKS) == expected
    assert "going on with 1" in said.pop()
    room = 1
    assert few.evaluate(SNAPSHOT, TASKS) == expected
    assert len(few.pids) == 2
    with pytest.raises(RunError, match="Too many open files"):
        pool(workers=1)


def test_a_pool_waits_for_workers_that_start_when_others_have_failed_to(pool, tmp_path):
    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        if len(said) == 3:
            (tmp_path / "go").touch()

    few = pool(recipe(Refusing, str(tmp_path)), workers=4, say=say)
    assert few.evaluate(SNAPSHOT, TASKS) == InProcessPool(recipe()).evaluate(SNAPSHOT, TASKS)
    assert len(few.pids) == 3
    assert "no licence" in said[2]
    assert "going on with 3" in said[2]


def test_a_pool_none_of_whose_workers_can_be_started_says_so_briefly(pool):
    said: list[str] = []
    with pytest.raises(RunError, match=r"no worker can be started.*nonsense"):
        pool(recipe(nonsense=1), workers=6, say=said.append).evaluate(SNAPSHOT, TASKS)
    assert len(said) == 3
    assert sum("Traceback" in line for line in said) == 1


def test_an_exception_of_the_environment_comes_with_task_and_traceback(pool):
    for failing in (pool(recipe(Raising)), InProcessPool(recipe(Raising))):
        with pytest.raises(RunError, match=r"(?s)Task\(index=5.*ValueError: unlucky"):
            failing.evaluate(SNAPSHOT, [*TASKS[:5], UNLUCKY])


@pytest.mark.parametrize(
    ("made_of", "cause"), [(KILLED, "signal SIGKILL"), (EXITED, "exit code 3")]
)
def test_a_task_that_kills_three_workers_ends_the_run_with_its_cause(pool, made_of, cause):
    said: list[str] = []
    dying = pool(made_of, say=said.append)
    with pytest.raises(RunError, match=rf"Task\(index=5.*failed 3 times.*died \({cause}\)"):
        dying.evaluate(SNAPSHOT, [*TASKS[:5], UNLUCKY])
    assert len(said) == 3


@pytest.mark.parametrize(
    ("workers", "seconds", "count"), [(1, 1e-3, 30), (3, 1e-3, 30), (2, 0, 900)]
)
def test_workers_killed_again_and_again_change_no_result(pool, workers, seconds, count):
    """Also while they start, and with the fork server; nothing of an earlier batch is taken.

    Workers with the shortest episodes take two tasks at once.
    """
    said: list[str] = []
    killed = pool(recipe(length=20, seconds=seconds), workers=workers, say=said.append)
    steady = InProcessPool(recipe(length=20))
    chance = random.Random(1)
    for batch in range(7):
        tasks = [TASKS[k % 10]._replace(index=k, episode_seed=k + batch) for k in range(count)]
        helpers = [child.pid for child in psutil.Process().children()] if batch % 3 == 0 else []
        victims = [*helpers, chance.choice(killed.pids)]
        moment = chance.randrange(count * 2 // 3)

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


def test_the_first_exception_in_this_process_ends_the_run(tmp_path):
    moody = InProcessPool(recipe(Raising, str(tmp_path / "file")))
    with pytest.raises(RunError, match=r"Task\(index=5.*failed \(ValueError: unlucky\)"):
        moody.evaluate(SNAPSHOT, [*TASKS[:5], UNLUCKY])
