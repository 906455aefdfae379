"""What tests of sweeps share."""

import csv
from pathlib import Path

import optuna

from es import sweep

CARTPOLE = ("--env-name", "CartPole-v1", "--max-frames", 12_000, "--seed", 2, "--jobs", 1)
LR = "[lr]\nchoices = [1e-6, 0.1]"
FAILING = (*CARTPOLE[2:], "--env-name", "tests.faulty:Faulty-v0", "--env-kwargs", "fault=raise")
# A trial waits after 49 updates while there is a file named `hold`.
PATIENT = ("--env-name", "tests.slow:Patient-v0", "--n", "2", "--eval-episodes", "1", "--seed", "1")
LONG = (*PATIENT, "--max-gradient-updates", "60", "--trials", "3", "--jobs", "2", "--dir", "here")


def run(capfd, *arguments):
    capfd.readouterr()
    status = sweep.main([str(argument) for argument in arguments])
    return status, *capfd.readouterr()


def space(text):
    Path("space.toml").write_text(text)
    return "--space", "space.toml", "--sampler-seed", 0  # which soon leaves a bad start


def bad_base():
    Path("base.toml").write_text("lr = 1e-6")
    return "--config", "base.toml"


def study(directory="here"):
    storage = optuna.storages.RDBStorage(f"sqlite:///{directory}/study.db")
    trials = optuna.load_study(study_name=None, storage=storage).trials
    storage.remove_session()
    storage.engine.dispose()
    return trials


def table(directory="here"):
    with Path(directory, "trials.csv").open(newline="") as file:
        return list(csv.DictReader(file))
