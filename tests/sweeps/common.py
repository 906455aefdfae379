"""What tests of sweeps share."""

from pathlib import Path

import optuna
from optuna.distributions import CategoricalDistribution
from optuna.trial import create_trial

from es import sweep
from es.sweeps.study import FRAMES, open_study
from tests.checkpoints import rows

CARTPOLE = ("--env-name", "CartPole-v1", "--max-frames", 12_000, "--seed", 2, "--jobs", 1)
LR = "[lr]\nchoices = [1e-6, 0.1]"


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
    return rows(Path(directory), "trials.csv")


def add_trials(command, rates, **more):
    """Puts complete trials of LR into the study of a command that is still to be run."""
    Path("here").mkdir()
    kinds: dict = {"lr": CategoricalDistribution((1e-6, 0.1))}
    more["user_attrs"] = {FRAMES: 9}
    with open_study(sweep.plan([str(word) for word in command])) as made:
        for lr in rates:
            made.add_trial(create_trial(value=lr, params={"lr": lr}, distributions=kinds, **more))
