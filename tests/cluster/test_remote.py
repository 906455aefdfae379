"""A pool in a process of its own."""

import os
import signal
from contextlib import closing
from functools import partial
from typing import Any

import pytest

from es.cluster import remote
from es.cluster.remote import RemotePool
from es.errors import ClusterError, RunError
from es.rollouts.player import InProcessPool
from es.rollouts.pool import WorkerPool
from tests.fakes import SNAPSHOT, TASKS, Starting, recipe, same_results
from tests.processes import all_gone, descendants, wait_until


def remote_pool(made_of, **options):
    make = partial(WorkerPool, made_of, size=10, workers=2)
    return closing(RemotePool(make, **options))


def test_whatever_happens_nothing_is_left_running(tmp_path):
    """The episode under way would last for a quarter of an hour; the other worker is idle."""
    log = tmp_path / "log"
    endless = recipe(length=1000, seconds=1.0, log=str(log))
    with remote_pool(endless) as pool:
        family = [pool._process.pid, *descendants(pool._process.pid)]
        pool.submit(SNAPSHOT, TASKS[:1])
        wait_until(lambda: log.exists() and log.read_text() == "made\n" * 2)
        before = signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, 2)
        with pytest.raises(KeyboardInterrupt):
            pool.results()
        signal.signal(signal.SIGALRM, before)
    wait_until(lambda: all_gone(family))
    assert log.read_text().startswith("made\nmade\nclosed\n")  # by the idle one
    with (
        remote_pool(recipe(nonsense=1), say=lambda line: None) as pool,
        pytest.raises(RunError, match="unexpected keyword argument 'nonsense'"),
    ):
        pool.evaluate(SNAPSHOT, TASKS)


def test_a_process_that_is_killed_is_started_again_and_changes_no_result(tmp_path):
    """While its workers are idle, and while they play."""
    said: list[str] = []
    done: list[int] = []
    pids = tmp_path / "pids"
    expected = InProcessPool(recipe()).evaluate(SNAPSHOT, TASKS)
    with remote_pool(recipe(Starting, str(pids), seconds=0.01), say=said.append) as pool:
        family = [pool._process.pid, *descendants(pool._process.pid)]
        assert same_results(pool.evaluate(SNAPSHOT, TASKS, done.append), expected)
        assert (done[-1], pool.describe(), said) == (10, "2 workers", [])
        family += [int(pid) for pid in pids.read_text().split()]
        pool.submit(SNAPSHOT, TASKS)
        os.kill(pool._process.pid, signal.SIGKILL)
        assert same_results(pool.evaluate(SNAPSHOT, TASKS), expected)
        second = pool._process.pid
        family += [second, *descendants(second)]

        def kill(done: int) -> None:
            if pool._process.pid == second and done:
                os.kill(second, signal.SIGKILL)

        assert same_results(pool.evaluate(SNAPSHOT, TASKS, kill), expected)
        assert same_results(pool.evaluate(SNAPSHOT, TASKS), expected)
        wait_until(lambda: all_gone(family))
    assert said == ["The process of the workers died (exit code -9): starting it again."] * 2


def die(say: Any) -> Any:
    """A pool whose making ends the process."""
    os._exit(7)


def test_a_process_that_dies_again_and_again_ends_the_run(monkeypatch):
    monkeypatch.setattr(remote, "PAUSE_SECONDS", 0.01)
    with pytest.raises(ClusterError, match=r"code 7\), 3 times in a row"):
        RemotePool(die, say=lambda line: None)
