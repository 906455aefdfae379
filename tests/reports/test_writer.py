import errno
import threading
import time
from functools import partial

import pytest

from es.errors import RunError
from es.reports import writer as writers
from es.reports.writer import BackgroundWriter


@pytest.fixture
def warnings():
    return list[str]()


def disk_full():
    raise OSError(errno.ENOSPC, "No space left on device")


def test_jobs_run_in_order_and_none_is_skipped(warnings):
    writer, done = BackgroundWriter(warnings.append), list[object]()
    for number in range(200):
        writer.submit({"a": partial(done.append, number), "b": partial(done.append, -number)})
    assert writer.close() == {}
    assert done == [each for number in range(200) for each in (number, -number)]
    assert warnings == []


def test_one_batch_may_wait_and_the_next_submitter_waits_for_it(warnings):
    writer, done, gate = BackgroundWriter(warnings.append), list[str](), threading.Event()
    writer.submit({"a": gate.wait})
    writer.submit({"a": lambda: done.append("second")})
    third = threading.Thread(target=writer.submit, args=({"a": lambda: done.append("third")},))
    third.start()
    time.sleep(0.05)
    assert third.is_alive()
    gate.set()
    third.join()
    writer.close()
    assert done == ["second", "third"]


def test_what_the_disk_refuses_is_told_once_and_tried_again(warnings):
    writer, done, full = BackgroundWriter(warnings.append), list[str](), True

    def job(text):
        if full:
            disk_full()
        done.append(text)

    writer.submit({"a": lambda: job("old a"), "b": lambda: job("b")})
    writer.submit({"a": lambda: job("new a")})
    writer.submit({"c": lambda: done.append("c")})
    while "c" not in done:
        time.sleep(0.01)
    full = False
    writer.submit({})
    assert writer.close() == {}
    assert done == ["c", "b", "new a"]
    assert [line.partition(" ")[0] for line in warnings] == ["a", "what"]
    assert "No space left on device" in warnings[0]


def test_it_is_tried_again_without_another_job(warnings, monkeypatch):
    monkeypatch.setattr(writers, "RETRY_SECONDS", 0.01)
    writer, attempts, written = BackgroundWriter(warnings.append), list[int](), threading.Event()

    def job():
        attempts.append(0)
        if len(attempts) < 4:
            disk_full()
        written.set()

    writer.submit({"a": job})
    assert written.wait(20)
    assert writer.close() == {}


def test_what_could_not_be_written_to_the_last_is_known(warnings):
    writer = BackgroundWriter(warnings.append)
    writer.submit({"a": disk_full, "b": lambda: None})
    assert writer.close() == {"a": "No space left on device"}


def test_only_so_many_files_wait(warnings):
    writer = BackgroundWriter(warnings.append, precious=("latest.safetensors",))
    writer.submit({"latest.safetensors": disk_full})
    count = writers.MOST_WAITING + 3
    for number in range(count):
        writer.submit({f"update-{number}.safetensors": disk_full})
    unwritten = writer.close()
    assert len(writer._waiting) == writers.MOST_WAITING + 1
    assert len(unwritten) == count + 1
    assert [line.split()[0] for line in warnings[1:]] == [
        f"update-{n}.safetensors" for n in range(3)
    ]


def test_a_second_outage_is_told_too_and_what_was_given_up_stays_known(warnings):
    writer, full = BackgroundWriter(warnings.append), False

    def job():
        if full:
            disk_full()

    for _ in range(4):
        full = not full
        for number in range(writers.MOST_WAITING + 1):
            writer.submit({f"update-{number}.safetensors": job})
        writer.submit({})
        writer.submit({})  # when this one is taken, the others are done
    assert set(writer.close()) == {"update-0.safetensors"}
    assert sum("cannot be written" in line for line in warnings) == 2
    assert sum("is written now" in line for line in warnings) == 2


def test_a_job_that_goes_wrong_otherwise_is_reported(warnings):
    writer = BackgroundWriter(warnings.append)

    def fail():
        raise ValueError("a mistake")

    writer.submit({"a": fail})
    with pytest.raises(RunError, match="a mistake"):
        writer.close()
