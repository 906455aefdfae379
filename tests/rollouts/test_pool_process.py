"""A pool in a process of its own."""

import os
import signal
from typing import Any

import pytest
from es.rollouts.by_value import ByValue
from es.rollouts.in_process import InProcessPool
from es.rollouts.pool_process import PoolProcess

from es.errors import RunError
from es.rollouts.pool import WorkerPool
from tests.fakes import SNAPSHOT, TASKS, recipe
from tests.processes import all_gone, descendants, wait_until

SETTINGS: dict[str, Any] = {"size": 10, "members": 10, "workers": 2}


def test_it_is_the_pool_that_it_makes(tmp_path):
    said: list[str] = []
    done: list[int] = []
    slow = recipe(log=str(tmp_path / "log"), seconds=0.01)  # enough for both to take part
    process = PoolProcess()
    process.open(WorkerPool, slow, say=said.append, **SETTINGS)
    family = [process.pid, *descendants(process.pid)]
    expected = InProcessPool(recipe()).evaluate(SNAPSHOT, TASKS)
    assert process.evaluate(SNAPSHOT, TASKS, done.append) == expected
    process.prepare(SNAPSHOT, TASKS[:3])
    assert process.evaluate(SNAPSHOT, TASKS[:3]) == expected[:3]
    assert (done[-1], process.describe(), said) == (10, "2 workers", [])
    process.close()
    process.close()
    assert all_gone(family)
    assert (tmp_path / "log").read_text() == "closed\n" * 2


def test_whatever_happens_nothing_is_left_running(tmp_path):
    """The episode under way would last for a quarter of an hour; the other worker is idle."""
    endless = recipe(length=1000, seconds=1.0, log=str(tmp_path / "log"))
    with PoolProcess() as process:
        process.open(WorkerPool, endless, **SETTINGS)
        family = [process.pid, *descendants(process.pid)]
        process.prepare(SNAPSHOT, TASKS[:1])
        before = signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        with pytest.raises(KeyboardInterrupt):
            process.evaluate(SNAPSHOT, TASKS[:1])
        signal.signal(signal.SIGALRM, before)
    assert all_gone(family)
    assert (tmp_path / "log").read_text().startswith("closed\n")  # by the idle one
    with (
        PoolProcess() as process,
        pytest.raises(RunError, match="unexpected keyword argument 'nonsense'"),
    ):
        process.open(WorkerPool, recipe(nonsense=1), **SETTINGS | {"workers": None})


@pytest.mark.parametrize("when", ["idle", "busy"])
def test_a_process_that_is_killed_is_started_again_and_changes_no_result(when):
    said: list[str] = []
    expected = InProcessPool(recipe()).evaluate(SNAPSHOT, TASKS)
    with PoolProcess() as process:
        process.open(WorkerPool, recipe(seconds=0.01), say=said.append, **SETTINGS)
        first, family = process.pid, [process.pid, *descendants(process.pid)]

        def kill(done: int = 1) -> None:
            if process.pid == first:
                os.kill(first, signal.SIGKILL)

        if when == "idle":
            process.prepare(SNAPSHOT, TASKS)
            kill()
        assert process.evaluate(SNAPSHOT, TASKS, kill) == expected
        assert process.evaluate(SNAPSHOT, TASKS) == expected
        wait_until(lambda: all_gone(family))
    assert said == ["The process of the workers died (exit code -9): starting it again."]


def die(recipe: Any, **settings: Any) -> Any:
    """A pool whose making ends the process."""
    os._exit(7)


def test_a_process_that_dies_again_and_again_ends_the_run():
    with (
        PoolProcess() as process,
        pytest.raises(RunError, match=r"died \(exit code 7\), 3 times in a row"),
    ):
        process.open(die, recipe())


def test_what_lies_in_main_is_pickled_with_what_it_needs_and_found_by_its_name():
    import __main__

    names = {"FACTOR": 2}
    made = ByValue(lambda: __import__("__main__").FACTOR * 3, names)
    assert made() == 6
    assert __main__.FACTOR == 2
    del __main__.FACTOR
