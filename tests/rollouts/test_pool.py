import contextlib
import os
import random
import signal
import threading

import numpy as np
import psutil
import pytest

from es.errors import RunError, TaskError
from es.rollouts.player import InProcessPool
from es.rollouts.tasks import TASK, Snapshot
from es.rollouts.worker import IDLE
from tests.fakes import (
    SNAPSHOT,
    TASKS,
    UNLUCKY,
    Exclusive,
    Exiting,
    Forking,
    Hanging,
    Killed,
    Raising,
    Refusing,
    Starting,
    recipe,
    same_results,
    tasks_with,
)
from tests.processes import all_gone, wait_until

OTHER_TASKS = tasks_with(*[50] * 10)


def expected(tasks, snapshot=SNAPSHOT):
    return InProcessPool(recipe()).evaluate(snapshot, tasks)


def test_any_number_of_workers_gives_the_results_of_this_process(pool):
    assert expected(TASKS)["index"].tolist() == list(range(10))
    for workers in (1, 3, 10):
        assert same_results(pool(workers=workers).evaluate(SNAPSHOT, TASKS), expected(TASKS))


def test_workers_are_kept_and_play_the_snapshot_of_the_moment(pool):
    kept = pool()
    first = kept.evaluate(SNAPSHOT, TASKS)
    pids = kept.pids
    second = kept.evaluate(Snapshot(SNAPSHOT.theta + 1, 0.1), TASKS)
    assert kept.pids == pids
    assert second["episode_return"] == pytest.approx(first["episode_return"] + 5 * 10, rel=1e-5)


def test_a_batch_that_was_submitted_for_nothing_is_abandoned(pool):
    surprised = pool()
    surprised.submit(SNAPSHOT, np.resize(TASKS, 3000))
    assert same_results(surprised.evaluate(SNAPSHOT, OTHER_TASKS), expected(OTHER_TASKS))


def test_tasks_can_be_added_to_a_batch_and_collected_as_they_come(pool):
    growing = pool()
    growing.begin(SNAPSHOT)
    found = []
    for part in (TASKS[:4], TASKS[4:]):
        growing.add(part)
        while growing.unfinished:
            found.append(growing.collect())
    together = np.concatenate(found)
    assert same_results(together[np.argsort(together["index"])], expected(TASKS))


def test_far_more_results_than_a_pipe_holds_are_drained(pool):
    done: list[int] = []
    results = pool().evaluate(SNAPSHOT, np.resize(TASKS, 5000), done.append)
    assert results["index"].tolist() == list(range(5000))
    assert done == sorted(done)
    assert done[-1] == 5000


def test_the_signals_of_the_terminal_do_not_reach_workers(pool):
    steady = pool(recipe(seconds=0.01))  # slow enough for both workers to take part
    steady.evaluate(SNAPSHOT, TASKS)
    pids = steady.pids
    for number in (signal.SIGINT, signal.SIGHUP):
        for pid in pids:
            os.kill(pid, number)
    assert same_results(steady.evaluate(SNAPSHOT, TASKS), expected(TASKS))
    assert steady.pids == pids


def test_close_lets_idle_workers_close_their_environment(pool, tmp_path):
    log = tmp_path / "log"
    idle = pool(recipe(log=str(log)))
    idle.evaluate(SNAPSHOT, TASKS)
    wait_until(lambda: log.read_text() == "made\n" * 2)
    pids = idle.pids
    idle.close()
    assert log.read_text() == "made\n" * 2 + "closed\n" * 2
    assert all_gone(pids)


def test_close_does_not_wait_for_a_long_episode(pool):
    """The episodes under way would last a quarter of an hour."""
    busy = pool(recipe(length=1000, seconds=1.0))
    busy.submit(SNAPSHOT, np.resize(TASKS, 3000))
    wait_until(lambda: IDLE not in busy._shared.playing)
    pids = busy.pids
    closing = threading.Thread(target=busy.close, daemon=True)
    closing.start()
    wait_until(lambda: not closing.is_alive())
    assert all_gone(pids)


def test_a_pool_waits_for_workers_that_start_when_others_have_failed_to(pool, tmp_path):
    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        if len(said) == 3:
            (tmp_path / "go").touch()

    few = pool(recipe(Refusing, str(tmp_path)), workers=4, say=say)
    assert same_results(few.evaluate(SNAPSHOT, TASKS), expected(TASKS))
    assert len(few.pids) == 3
    assert "no licence" in said[2]
    assert "going on with 3" in said[2]


def test_workers_that_can_never_start_are_given_up_while_others_play(pool, tmp_path):
    said: list[str] = []
    alone = pool(recipe(Exclusive, str(tmp_path)), workers=2, say=said.append)
    while len(said) < 3:
        alone.evaluate(SNAPSHOT, TASKS)
    assert "going on with 1" in said[2]


def test_environments_may_use_multiprocessing(pool):
    assert same_results(pool(recipe(Forking)).evaluate(SNAPSHOT, TASKS), expected(TASKS))


def test_a_pool_none_of_whose_workers_can_be_started_says_so_briefly(pool):
    said: list[str] = []
    with pytest.raises(RunError, match=r"no worker can be started.*argument 'nonsense'"):
        pool(recipe(nonsense=1), workers=6, say=said.append).evaluate(SNAPSHOT, TASKS)
    assert len(said) == 3
    assert sum("Traceback" in line for line in said) == 1


@pytest.mark.parametrize(
    ("made_of", "cause"),
    [
        (recipe(Killed), r"died \(signal SIGKILL\)"),
        (recipe(Exiting), r"died \(exit code 3\)"),
        (recipe(Raising), r"failed \(ValueError: unlucky\)"),
        (recipe(Hanging), r"was ended: its episode took over 2 s \(--rollout-timeout\)"),
    ],
)
def test_a_task_that_fails_three_times_ends_the_run_with_its_cause(pool, made_of, cause):
    said: list[str] = []
    failing = pool(made_of, timeout=2 if "took" in cause else None, say=said.append)
    with pytest.raises(TaskError, match=f"seed 13 .* failed 3 times; the last worker {cause}") as e:
        failing.evaluate(SNAPSHOT, UNLUCKY)
    assert [line.count("seed 13") for line in said] == [1, 1]
    assert ("ValueError: unlucky" in str(e.value.details)) == ("unlucky" in cause)


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
    for batch in range(5):
        tasks = tasks_with(*range(batch, batch + count))
        helpers = [child.pid for child in psutil.Process().children()] if batch == 0 else []
        victims = [*helpers, chance.choice(killed.pids)]
        moment = chance.randrange(count * 2 // 3)

        def strike(done: int, moment: int = moment, victims: list[int] = victims) -> None:
            while done > moment and victims:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(victims.pop(), signal.SIGKILL)

        assert same_results(
            killed.evaluate(SNAPSHOT, tasks, strike), steady.evaluate(SNAPSHOT, tasks)
        )
    assert len(said) >= 3
    # The exit code of a worker whose fork server died too is unknown: multiprocessing says 255.
    assert all("signal SIGKILL" in line or "exit code 255" in line for line in said)


def test_a_task_that_died_with_its_worker_unnoticed_is_played(pool):
    """Just after taking it, before any note of that: here it is taken out of the pipe."""
    robbed = pool(recipe(length=1, seconds=0.1), workers=1)
    robbed.wait_ready()
    os.kill(robbed.pids[0], signal.SIGSTOP)
    robbed.submit(SNAPSHOT, TASKS)
    assert len(os.read(robbed._reader.fileno(), TASK.itemsize)) == TASK.itemsize
    os.kill(robbed.pids[0], signal.SIGCONT)
    assert robbed.results()["index"].tolist() == list(range(10))


@pytest.mark.parametrize("forks", [False, True])
@pytest.mark.parametrize("ended", ["busy", "free", "killed"])
def test_workers_take_with_them_what_their_environments_have_started(pool, tmp_path, ended, forks):
    pids = tmp_path / "pids"
    leaving = pool(recipe(Starting, str(pids), forks=forks), workers=1, say=lambda line: None)
    if ended == "free":
        leaving.evaluate(SNAPSHOT, TASKS)
    elif ended == "killed":
        leaving.wait_ready()
        os.kill(leaving.pids[0], signal.SIGKILL)
        leaving.evaluate(SNAPSHOT, TASKS)
    else:
        leaving.submit(SNAPSHOT, tasks_with(14))
        wait_until(lambda: leaving._shared.playing[0] != IDLE)
    leaving.close()
    assert len(pids.read_text().split()) >= (2 if ended == "killed" else 1)
    wait_until(lambda: all_gone([int(pid) for pid in pids.read_text().split()]), 30)
