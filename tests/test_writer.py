import threading
import time
from functools import partial

import pytest

from es.errors import RunError
from es.writer import BackgroundWriter


def test_jobs_run_in_order_and_none_is_skipped():
    writer, done = BackgroundWriter(), list[object]()
    for number in range(200):
        writer.submit(partial(done.append, number))
    writer.close()
    assert done == list(range(200))


def test_one_job_may_wait_and_the_next_submitter_waits_for_it():
    writer, done, gate = BackgroundWriter(), [], threading.Event()
    writer.submit(gate.wait)
    writer.submit(lambda: done.append("second"))
    third = threading.Thread(target=writer.submit, args=(lambda: done.append("third"),))
    third.start()
    time.sleep(0.05)
    assert third.is_alive()
    gate.set()
    third.join()
    writer.close()
    assert done == ["second", "third"]


def test_a_failed_job_is_reported():
    writer = BackgroundWriter()

    def fail():
        raise OSError("disk full")

    writer.submit(fail)
    with pytest.raises(RunError, match="disk full"):
        writer.close()
