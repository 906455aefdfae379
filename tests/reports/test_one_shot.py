"""Processes that do one thing beside a run, and end with it."""

import os
from contextlib import closing
from pathlib import Path

import psutil

from es.reports import one_shot
from es.reports.one_shot import USUAL, OneShot
from tests.fakes import LINGERING
from tests.processes import ROOT, all_gone, run_python, wait_until


def test_what_is_started_ends_with_a_master_that_is_killed(tmp_path):
    Path("lingering.py").write_text(LINGERING)
    master = """
import os, signal, time
from es.reports.one_shot import start
process = start("lingering")
while not os.path.exists("begun"):
    time.sleep(0.02)
print(process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = run_python(master, tmp_path, PYTHONPATH=os.pathsep.join((str(ROOT), str(tmp_path))))
    wait_until(lambda: all_gone([int(done.stdout), int(Path("pid").read_text())]))


def test_what_the_run_waits_for_gets_its_priority():
    usual = psutil.Process().nice()
    with closing(OneShot()) as process, closing(OneShot(priority=USUAL)) as waited_for:
        status = psutil.Process(process.pid)
        wait_until(lambda: status.nice() == 19)
        # Where users may not raise a priority, they are told.
        wait_until(lambda: not process.hasten() or status.nice() == usual)
        assert status.nice() == (usual if process.hasten() else 19)
        waited_for.run("keyword")
        assert psutil.Process(waited_for.pid).nice() == usual
        assert waited_for.failure() == ""


def test_a_process_that_was_prepared_is_not_left_behind():
    one_shot.prepare("time")
    (process,) = one_shot._prepared
    status = psutil.Process(process.pid)
    wait_until(lambda: status.nice() == 19)  # it takes no time from the training
    share = Path(f"/proc/{process.pid}/autogroup")
    wait_until(lambda: not share.exists() or share.read_text().endswith("nice 19\n"))
    one_shot.discard()
    assert all_gone([process.pid])
    assert not one_shot._prepared
