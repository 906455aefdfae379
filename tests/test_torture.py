"""Runs that are killed again and again end as undisturbed ones: python -m pytest -m slow."""

import contextlib
import csv
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests import records
from tests.checkpoints import has_rows, read, rows, same, same_run, timeless
from tests.processes import ROOT

pytestmark = pytest.mark.slow
KILLS = 50
MARK = "TORTURED_RUN"  # an environment variable, which the processes of a run inherit
LONG = (
    "--env-name", "Acrobot-v1", "--small-net", "--n", "20", "--sigma", "0.5", "--useAdam",
    "--lr", "0.05", "--obs-norm", "--seed", "1", "--silent", "--max-gradient-updates", 10**6,
)  # fmt: skip
# Short updates, about 200 a second, so that most kills hit a file that is being written.
WRITING = (
    "--env-name", "Pendulum-v1", "--small-net", "--n", "4", "--useAdam", "--lr", "0.01",
    "--obs-norm", "--variable-ep-len", "--max-episode-length", "20", "--lr-decay", "0.9999",
    "--eval-every", "7", "--eval-episodes", "2", "--save-every", "100", "--seed", "1",
    "--workers", "2", "--silent", "--max-gradient-updates", 10**6,
)  # fmt: skip


def start(*arguments: object) -> "subprocess.Popen[bytes]":
    command = [sys.executable, str(ROOT / "main.py"), *map(str, arguments)]
    # The shell becomes the program: its own id is in the variable.
    shell = ["/bin/sh", "-c", f'{MARK}=$$ exec "$@"', "sh", *command]
    return subprocess.Popen(shell, stdout=subprocess.DEVNULL)


def helpers(master: int) -> list[psutil.Process]:
    """The processes of a run but its master. Workers may have lost their parent."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.pid != master and process.environ().get(MARK) == str(master):
                found.append(process)
    return found


def test_any_process_but_the_master_may_be_killed():
    rng, kills, updates = random.Random(0), 0, 0
    program = start(*LONG, "--workers", 4, "--run-dir", "killed")
    while kills < KILLS:
        assert program.poll() is None
        time.sleep(rng.uniform(0, 0.2))
        # The run progresses between kills, however slow the machine is.
        if has_rows(Path("killed"), updates) and (victims := helpers(program.pid)):
            updates += rng.randrange(60)
            with contextlib.suppress(psutil.NoSuchProcess):
                rng.choice(victims).kill()
                kills += 1
    program.send_signal(signal.SIGINT)
    assert program.wait() == 128 + signal.SIGINT
    killed = read("killed/latest.safetensors")
    count = killed.counters.update
    assert start(*LONG[:-1], count, "--workers", 2, "--run-dir", "quiet").wait() == 0
    assert same_run(killed, read("quiet/latest.safetensors"))
    assert timeless(Path("killed")) == timeless(Path("quiet"))


def test_the_master_may_be_killed_at_any_instant():
    rng, killed, quiet = random.Random(0), Path("killed"), Path("quiet")
    latest = killed / "latest.safetensors"
    seconds, done = 6.0, 0
    for _ in range(KILLS):
        if latest.exists():
            program = start("--restore", latest, "--silent")
        else:
            shutil.rmtree(killed, ignore_errors=True)  # or the run would take a number
            program = start(*WRITING, "--run-dir", killed)
        time.sleep(rng.uniform(0, seconds))
        assert program.poll() is None
        program.kill()
        program.wait()
        if latest.exists():
            with (killed / "progress.csv").open(newline="") as file:
                written = [int(row["update"]) for row in csv.DictReader(file) if row["sigma"]]
            before, done = done, read(latest).counters.update
            assert written[:done] == list(range(1, done + 1))
            seconds *= 1 if done > before else 1.2  # a slow machine
        else:
            seconds *= 1.2
    updates = ("--max-gradient-updates", done + 500)
    assert start("--restore", latest, "--silent", *updates).wait() == 0
    assert start(*WRITING, *updates, "--run-dir", quiet).wait() == 0
    names = sorted(path.name for path in quiet.glob("*.safetensors"))
    assert names == sorted(path.name for path in killed.glob("*.safetensors"))
    assert all(same_run(read(killed / name), read(quiet / name)) for name in names)
    assert timeless(killed) == timeless(quiet)
    assert all(float(row["grad_norm"]) > 0 for row in rows(killed))
    assert same(scalars(killed), scalars(quiet))


def scalars(run: Path) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard shows, without the figures that depend on the clock."""
    clocks = ("wall_seconds", "steps_per_second")
    return {tag: values for tag, values in records.scalars(run).items() if not tag.endswith(clocks)}
