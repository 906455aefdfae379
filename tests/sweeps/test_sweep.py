"""Searching for hyperparameters."""

import os
import signal
import subprocess
import sys
import threading
from functools import partial
from multiprocessing import forkserver
from pathlib import Path

import pytest

from es.rollouts.processes import CORES
from es.run import open_directory
from tests.checkpoints import has_rows, read, rows, settings
from tests.processes import ROOT, all_gone, descendants, wait_until
from tests.sweeps.common import CARTPOLE, LR, bad_base, run, space, study, table

# A trial waits after 9 updates of its process while there is a file named `hold`.
PATIENT = ("--env-name", "tests.slow:Patient-v0", "--n", "2", "--eval-episodes", "1", "--seed", "1")
SEEDLESS = PATIENT[:-2]
LONG = (*SEEDLESS, "--max-gradient-updates", "60", "--trials", "3", "--jobs", "2", "--dir", "here")
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
    assert "With the settings as they were given (trial 0): " in out
    assert "No importance.png: it needs 8 complete trials whose values differ" in out
    found = table()
    assert float(found[0]["lr"]) == 1e-6
    best = max(found, key=lambda row: float(row["value"]))
    assert float(best["value"]) > float(found[0]["value"]) + 400
    trial = Path("here", f"trial-000{best['trial']}")
    assert f"Best: trial {best['trial']}, a mean return of {float(best['value']):.2f}" in out
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


def test_a_sweep_does_not_wait_for_a_thread_of_an_environment(search):
    lasting = ("--env-wrapper", "tests.slow:Lasting", f"file={Path('lasted').absolute()}")
    command = (*CARTPOLE[:2], "--max-gradient-updates", 1, "--n", 4, *lasting, *space(LR))
    status, _, err = search(*command, "--dir", "here", "--trials", 1, "--jobs", 1)
    assert (status, err) == (0, "")
    assert not Path("lasted").exists()


def test_a_sweep_that_is_killed_or_interrupted_continues_its_trials(search, monkeypatch):
    runs = [Path("here/trial-0000"), Path("here/trial-0001")]
    monkeypatch.setenv(CORES, "2")
    Path("hold").touch()
    Path("tests").symlink_to(ROOT / "tests")  # whose environment is found in this folder alone
    program = [sys.executable, str(ROOT / "sweep.py"), *LONG]
    with subprocess.Popen(program, stdout=subprocess.DEVNULL, start_new_session=True) as process:
        try:
            wait_until(lambda: all(has_rows(path, 4) for path in runs))  # so three are saved
            pids = descendants(process.pid)
            assert len(pids) == 4  # the resource tracker, the fork server, two trials
        finally:
            process.kill()
    wait_until(lambda: all_gone(pids))
    before, played = [trial.params for trial in study()], [(path, rows(path)) for path in runs]
    seeds = [settings(path / "latest.safetensors").seed for path in runs]

    def interrupt():
        wait_until(lambda: all(has_rows(path, len(first) + 3) for path, first in played))
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    status, out, err = search(*LONG)
    thread.join()
    assert (status, err) == (130, "")
    assert out.splitlines()[-2].startswith("Interrupted: 0 of 3 trials are done. Go on with")
    assert [row.state.name for row in study()] == ["RUNNING", "RUNNING"]
    for path in runs:
        assert 0 <= len(rows(path)) - read(path / "latest.safetensors").counters.update <= 1

    Path("hold").unlink()
    status, out, err = search(*LONG)
    assert (status, err) == (0, "")
    trials = study()
    assert [trial.params for trial in trials[:2]] == before
    assert [trial.state.name for trial in trials] == ["COMPLETE"] * 3
    assert [row["state"] for row in table()] == ["complete"] * 3
    assert out.count("Trial ") == 3
    for path, first in played:
        assert len(rows(path)) == 60
        assert rows(path)[:3] == first[:3]  # with the same times: they were not played again
    assert [settings(path / "latest.safetensors").seed for path in runs] == seeds
