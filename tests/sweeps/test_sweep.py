"""Searching for hyperparameters."""

import os
import signal
import subprocess
import sys
from functools import partial
from multiprocessing import forkserver
from pathlib import Path

import pytest

from es.rollouts.processes import CORES
from es.run import open_directory
from tests.checkpoints import has_rows, read, rows
from tests.processes import ROOT, all_gone, descendants, wait_until
from tests.sweeps.common import CARTPOLE, LR, bad_base, run, space, study, table

# A trial waits after 49 updates while there is a file named `hold`.
PATIENT = ("--env-name", "tests.slow:Patient-v0", "--n", "2", "--eval-episodes", "1", "--seed", "1")
LONG = (*PATIENT, "--max-gradient-updates", "60", "--trials", "3", "--jobs", "2", "--dir", "here")
stop = getattr(forkserver, "_forkserver")._stop  # noqa: B009 (which no type is declared for)


@pytest.fixture(scope="module")
def _fork_server():
    """One that has imported what trials need, as in the program."""
    stop()
    yield
    stop()


@pytest.fixture
def search(capfd, _fork_server):
    """Runs command lines in this process: status, standard output and standard error."""
    return partial(run, capfd)


def test_it_improves_on_its_start_and_what_it_found_trains_the_same_again(search, program):
    command = (*CARTPOLE, "--n", 20, *bad_base(), *space(LR), "--dir", "here", "--trials", 3)
    status, out, err = search(*command)
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert [line.split(":")[0] for line in lines[:3]] == ["Trial 0", "Trial 1", "Trial 2"]
    assert lines[-1].endswith(" --config here/best.toml")
    assert "No importance.png: to tell which settings matter takes 8 complete trials" in out
    found = table()
    assert float(found[0]["lr"]) == 1e-6
    best = max(found, key=lambda row: float(row["value"]))
    assert float(best["value"]) > float(found[0]["value"]) + 400
    trial = Path("here", f"trial-000{best['trial']}")
    assert f"Best: trial {best['trial']}, a mean return of {float(best['value']):.2f}" in out
    was = float(found[0]["value"])
    assert f"With the settings as they were given (trial 0): {was:.2f}\n" in out
    assert "\nlr = 0.1\n" in Path("here/best.toml").read_text()  # though it is the default
    status, *_ = program("--config", "here/best.toml", "--workers", 0, "--run-dir", "again")
    assert status == 0
    assert rows(Path("again"))[-1]["return_mean"] == rows(trial)[-1]["return_mean"]
    _, out, _ = program(
        "--test", "--no-render", "--episodes", 20, "--restore", trial / "latest.safetensors"
    )
    assert f"20 episodes: mean {float(best['value']):.2f}," in out

    assert search(*command)[0] == 0  # nothing is left to do
    assert len(study()) == 3
    lock = open_directory(Path("here"))
    status, _, err = search(*command)
    lock.close()
    assert status == 2
    assert err.startswith("error: --dir here: another run writes there")
    assert len(study()) == 3


def test_a_trial_whose_settings_do_not_fit_fails_with_the_reason(search):
    misfit = space("[top-directions]\nchoices = [3]")
    command = (*CARTPOLE, "--n", 4, *misfit, "--dir", "here", "--trials", 1)
    status, _, err = search(*command)
    assert status == 1
    reason = "--top-directions 3 must be at most half of --n 4"
    assert err.startswith(f"error: no trial is complete; the last has failed: {reason}")
    assert err.count("\n") == 1


@pytest.fixture
def under_way(monkeypatch):
    """A sweep of three trials, two of which have come somewhere and wait, and its processes."""
    monkeypatch.setenv(CORES, "2")
    Path("hold").touch()
    Path("tests").symlink_to(ROOT / "tests")  # whose environment is found in this folder alone
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "sweep.py"), *LONG],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        wait_until(lambda: all(has_rows(Path(f"here/trial-000{k}"), 3) for k in (0, 1)))
        yield process, descendants(process.pid)
    finally:
        process.kill()  # its trials end by themselves
        process.communicate()


def test_a_killed_sweep_continues_its_trials(under_way, search):
    process, pids = under_way
    process.kill()
    process.communicate()
    wait_until(lambda: all_gone(pids))
    Path("hold").unlink()
    before = [trial.params for trial in study()]
    played = [rows(Path(f"here/trial-000{k}"))[:3] for k in (0, 1)]
    status, out, err = search(*LONG)
    assert (status, err) == (0, "")
    trials = study()
    assert [trial.params for trial in trials[:2]] == before
    assert [trial.state.name for trial in trials] == ["COMPLETE"] * 3
    assert [row["state"] for row in table()] == ["complete"] * 3
    assert out.count("Trial ") == 3
    for number in (0, 1):
        found = rows(Path(f"here/trial-000{number}"))
        assert len(found) == 60
        assert found[:3] == played[number]  # with the same times: they were not played again


def test_an_interrupt_ends_all_trials_with_their_runs_saved(under_way):
    process, pids = under_way
    assert len(pids) == 4  # the resource tracker, the fork server, two trials
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "")
    assert out.splitlines()[-2].startswith("Interrupted: 0 of 3 trials are done. Go on with")
    wait_until(lambda: all_gone(pids))
    assert [row.state.name for row in study()] == ["RUNNING", "RUNNING"]
    for number in (0, 1):
        run = Path(f"here/trial-000{number}")
        assert read(run / "latest.safetensors").counters.update == len(rows(run))
