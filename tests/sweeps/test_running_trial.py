"""The process of a trial."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from es.config import Config
from es.sweeps.running_trial import RunningTrial, end_trials
from tests.fakes import start_lasting
from tests.processes import all_gone, wait_until


def linger(directory: Path, interrupts: Any) -> dict[str, float]:
    """Plays a trial whose environment starts a process, and which never ends."""
    pid = start_lasting().pid
    (directory / "pid").write_text(str(pid))
    (directory / "begun").touch()
    interrupts.defer()
    time.sleep(600)
    return {}


@pytest.mark.parametrize("ended", ["killed", "interrupted"])
def test_a_trial_takes_with_it_what_its_environment_has_started(tmp_path, ended):
    optuna_trial: Any = None
    directory = tmp_path / "trial"
    trial = RunningTrial(optuna_trial, Config(max_gradient_updates=1), directory, linger)
    wait_until((directory / "begun").exists)
    if ended == "killed":
        os.kill(trial.process.pid or 0, signal.SIGKILL)
        assert trial.outcome() == {"error": "its process died (exit code -9)"}
    else:
        end_trials([trial])
    wait_until(lambda: all_gone([int((directory / "pid").read_text())]), 30)
