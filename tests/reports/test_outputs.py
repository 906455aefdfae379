"""Real processes whose disk is full, or whose output nobody takes."""

import resource
import signal
import subprocess
import sys
import time

import pytest

from es.reports.append_only import Place
from es.reports.tensorboard import EVENTS, EventFile
from tests.checkpoints import RUN, has_rows, read, rows
from tests.conftest import ENDLESS
from tests.processes import ROOT, wait_until

LIMITED = ("--small-net", "--env-name", "CartPole-v1", "--n", 4, "--seed", 1, "--workers", 0)


@pytest.mark.picture
def test_a_run_outlives_a_full_disk_and_lacks_nothing_afterwards(start):
    """A limit on the size of files, which can be lifted again, stands for the disk."""
    process = start(*LIMITED, "--silent")
    wait_until(lambda: has_rows(RUN, 50))
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))
    assert process.stderr is not None
    assert "cannot be written (File too large)" in process.stderr.readline()
    full = (RUN / "latest.safetensors").read_bytes()
    time.sleep(0.5)
    assert (RUN / "latest.safetensors").read_bytes() == full
    endless = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, endless)
    assert "is written now" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "")
    updates = [int(row["update"]) for row in rows()]
    assert updates == list(range(1, read(RUN / "latest.safetensors").counters.update + 1))
    assert not list(RUN.glob("*.tmp"))


def test_a_run_whose_directory_was_moved_does_not_write_into_another(start, program):
    process = start(*LIMITED, "--silent")
    wait_until(lambda: has_rows(RUN, 20))
    away = RUN.rename(RUN.with_name("away"))
    assert process.stderr is not None
    assert "cannot be written" in process.stderr.readline()
    program.train("--max-gradient-updates", 2)
    time.sleep(0.3)
    assert read(RUN / "latest.safetensors").counters.update == len(rows()) == 2
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    *_, complaint, command = err.splitlines()
    assert "latest.safetensors" in complaint
    assert "progress.csv" in complaint
    assert "--restore" in command
    assert read(away / "latest.safetensors").counters.update <= len(rows(away))


def test_a_last_checkpoint_that_cannot_be_written_is_an_error(start):
    process = start(*LIMITED, "--max-gradient-updates", 20_000)
    wait_until(lambda: has_rows(RUN, 5))
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))
    assert process.stderr is not None
    process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 143
    assert err.startswith("error: --run-dir checkpoints/CartPole-v1: after ")
    assert "latest.safetensors" in err
    assert "could not be written (File too large)" in err
    complaint, command = err.splitlines()
    assert complaint.endswith(". Continue from there:")
    assert command.endswith(" --restore checkpoints/CartPole-v1/latest.safetensors")
    assert "Watch it" not in out
    assert 0 < read(RUN / "latest.safetensors").counters.update < int(err.split()[4])


@pytest.mark.parametrize("output", [">&-", ">/dev/full", ">/dev/full 2>&1", "2>&-", "<&- >&- 2>&-"])
def test_a_missing_or_full_output_loses_nothing_but_words(output):
    command = [sys.executable, str(ROOT / "main.py"), *map(str, LIMITED)]
    result = subprocess.run(
        ["sh", "-c", f'exec "$@" {output}', "sh", *command, "--max-gradient-updates", "1"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.returncode == 0
    assert read(RUN / "latest.safetensors").counters.update == 1
    if output == ">/dev/full":
        warning, last_line = result.stderr.splitlines()
        assert warning == "warning: standard output cannot be written (No space left on device)"
        assert last_line.startswith("Finished: 1 update, ")
    else:
        assert result.stderr == ""


def test_a_mistake_has_its_status_whoever_reads_of_it():
    command = [sys.executable, str(ROOT / "main.py"), "--lr", "nope"]
    for output in ("2>/dev/full", "2>&-", ">&-"):
        shell = ["sh", "-c", f'exec "$@" {output}', "sh", *command]
        assert subprocess.run(shell, capture_output=True, check=False).returncode == 2


def test_a_reader_that_leaves_ends_the_run_as_a_signal_does(start):
    process = start(*ENDLESS, "--workers", 0)
    assert process.stdout is not None
    next(line for line in process.stdout if line.startswith("Steps per second"))
    process.stdout.close()
    process.wait(60)
    assert process.returncode == 128 + signal.SIGPIPE
    assert process.stderr is not None
    line, command = process.stderr.read().splitlines()
    assert line.startswith(f"Interrupted after {len(rows())} update")
    assert line.endswith("Continue:")
    assert command.endswith(f" --restore {RUN}/latest.safetensors")


def test_a_clock_that_is_set_back_keeps_the_order_of_event_files(tmp_path, monkeypatch):
    """TensorBoard would read what purges older events before them."""
    later = tmp_path / f"{EVENTS}.{time.time_ns()}.host.1"
    for path in (later, tmp_path / f"{EVENTS}.of.somebody.else"):
        path.touch()
    monkeypatch.setattr(time, "time_ns", lambda: 10**18)
    EventFile(Place(tmp_path), purge_step=3).close()
    made = {path.name for path in tmp_path.glob(f"{EVENTS}.1*")} - {later.name}
    assert len(made) == 1
    assert min(made) > later.name
