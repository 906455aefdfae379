"""Command lines of sweep.py that play no trial."""

import os
from functools import partial
from pathlib import Path

import pytest

from es import sweep
from es.rollouts.processes import CORES
from tests.sweeps.common import CARTPOLE, LR, add_trials, bad_base, run, space


@pytest.fixture
def plan(capfd, monkeypatch):
    """Runs them in this process: status, standard output and standard error."""
    monkeypatch.setattr("es.cli.start_forkserver", lambda preload: None)
    return partial(run, capfd)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("", "a trial needs a budget: give --max-frames"),
        ("--max-frames 9 --trial 3", "unknown flag --trial; did you mean --trials?"),
        ("--max-frames 9 --trials 0", "--trials 0 must be"),
        ("--max-frames 9 --n 7", "--n 7 must be even"),
        ("--max-frames 9 --restore a.safetensors", "--restore applies only to a single run"),
        ("--max-frames 9 --space missing.toml", "--space missing.toml: cannot be read"),
        ("--max-frames 9 --dir file/here", "--dir file/here: cannot be written (Not a directory"),
    ],
)
def test_a_wrong_command_line_is_one_line(plan, arguments, words):
    Path("file").touch()
    status, out, err = plan("--env-name", "CartPole-v1", *arguments.split())
    assert (status, out) == (2, "")
    assert err.startswith("error: ")
    assert words in err
    assert err.count("\n") == 1
    assert os.listdir() == ["file"]


def test_without_optuna_the_remedy_is_named(plan, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    status, _, err = plan(*CARTPOLE)
    assert status == 2
    assert err == "error: a sweep needs Optuna: pip install -r requirements-extra.txt\n"


def test_a_setting_that_is_given_leaves_the_space(plan):
    prepared = sweep.plan(["--env-name=CartPole-v1", "--max-frames=9", "--useAdam", "--lr=0.1"])
    assert prepared.space.keys() == {
        "sigma", "n", "shaping", "hidden_sizes", "activation", "weight_decay",
    }  # fmt: skip
    assert prepared.base.optimizer == "adam"
    phases = sweep.plan(["--config=MountainCar-v0", "--max-frames=9"])
    assert phases.space.keys() == {
        "lr",
        "n",
        "shaping",
        "hidden_sizes",
        "activation",
        "weight_decay",
    }
    status, _, err = plan(*CARTPOLE, "--lr", 0.1, *space(LR))
    assert status == 2
    assert "nothing is left to search" in err


def test_a_setting_of_the_space_needs_the_one_that_it_applies_with(plan):
    table = "[obs-clip]\nlow = 1.0\nhigh = 9.0\n"
    status, _, err = plan(*CARTPOLE, *space(table))
    assert (status, "--obs-clip applies only with --obs-norm" in err) == (2, True)
    assert sweep.plan([*map(str, (*CARTPOLE, *space(table))), "--obs-norm"]).space
    both = space(f"{table}[obs-norm]\nchoices = [true, false]\n")
    assert sweep.plan(list(map(str, (*CARTPOLE, *both)))).space.keys() == {"obs_clip", "obs_norm"}


@pytest.mark.parametrize(("workers", "jobs"), [("0", 64), ("None", 1)])
def test_trials_that_use_several_processes_are_played_one_by_one(plan, monkeypatch, workers, jobs):
    monkeypatch.setenv(CORES, "64")
    command = ["--env-name=CartPole-v1", "--max-frames=9", f"--workers={workers}"]
    assert sweep.plan(command).jobs == jobs
    assert os.environ[CORES] == "64"


def test_a_timeout_of_rollouts_takes_workers(plan):
    prepared = sweep.plan(["--env-name=CartPole-v1", "--max-frames=9", "--rollout-timeout=60"])
    assert (prepared.base.workers, prepared.jobs) == (None, 1)


def test_what_matters_is_drawn(plan):
    command = (*CARTPOLE, *bad_base(), *space(LR), "--dir", "here", "--trials", 9)
    add_trials(command, [1e-6, 0.1] * 4 + [1e-6])
    status, out, err = plan(*command)
    assert (status, err) == (0, "")
    assert "Best: trial 2," in out
    assert Path("here/importance.png").read_bytes().startswith(b"\x89PNG")
