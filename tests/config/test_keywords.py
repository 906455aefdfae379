"""The settings as a program gives them to `learn` and `load_policy`."""

import inspect
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.wrappers import FlattenObservation, TimeLimit

from es import learn, load_policy
from es.config import FIELDS, Config
from es.config.keywords import errors_in_keywords, from_keywords
from es.errors import RunError, UsageError
from es.runs.checkpoint import Counters
from es.runs.finish import conclude
from tests.awful import Awful
from tests.checkpoints import read, same_run

HERE: dict[str, Any] = {
    "env_name": "CartPole-v1",
    "n": 4,
    "seed": 1,
    "small_net": True,
    "silent": True,
    "workers": 0,
}


def test_every_setting_is_a_keyword():
    keywords = inspect.signature(learn).parameters
    playing = {name for name, field in FIELDS.items() if field.metadata["group"] == "watching"}
    assert keywords.keys() == (FIELDS.keys() - playing) | {"callback"}
    for name, parameter in keywords.items():
        assert name == "callback" or parameter.default == FIELDS[name].default


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"n": 3}, "n 3: must be an even number"),
        ({"n": "many"}, r"n = 'many': must be a valid integer"),
        ({"n": [2, 4]}, r"n = \(2, 4\): must be a valid integer"),
        ({"hidden_sizes": "many"}, r"hidden_sizes = \('many',\): must be a valid integer"),
        ({"env_name": Awful()}, "env_name: must be a name, a class or .*, not an object of Awful"),
        ({"env_name": lambda: Awful()}, "<lambda>.*: has no name"),
        ({"env_name": CartPoleEnv}, "CartPoleEnv: is registered as CartPole-v0, CartPole-v1; give"),
        ({"net": partial(Awful)}, "net: must be a name, .*, not an object of partial"),
        ({"net": lambda: Awful()}, "net=<lambda>: must be defined at the top level of a module"),
        ({"callback": 3}, "callback=3: must be a function of an update's row and the policy"),
        ({"callback": lambda row: None}, r"callback=.*\(too many positional arguments\)"),
        ({"lr": 0.0}, "lr 0.0: must be from"),
        ({"learning_rate": 0.1}, "unknown setting 'learning_rate'; perhaps you meant lr"),
        ({"sigma_decays": 0.1}, "unknown setting 'sigma_decays'; perhaps you meant sigma_decay"),
        ({"test": True}, r"test is for the command line \(--test\)"),
        ({"env_name": "CartPoole-v1"}, "env_name CartPoole-v1: .* did you mean CartPole-v1"),
        ({"env_kwargs": {"a": object()}}, r"env_kwargs a=<object .*: must be a number"),
        ({"env_kwargs": {"wind": 3}}, "unexpected keyword argument 'wind'"),
        ({"config": "none.toml"}, "config none.toml: cannot be read"),
        ({"restore": "none"}, "restore none: cannot be read"),
        ({"optimizer": "clipup"}, "max_speed"),
        ({"vbn": True}, "vbn: is for the Convnet-LSTM"),
    ],
)
def test_settings_that_do_not_fit_are_errors_and_leave_nothing(settings, words):
    with pytest.raises(UsageError, match=words):
        learn(**HERE | settings)
    assert not [*Path().iterdir()]


def test_values_may_be_those_of_python_and_numpy(program):
    program(
        *("--config", "Pendulum-v1", "--env-kwargs", "g=9.5", "--hidden-sizes", 8, 4, "--n", 4),
        *("--max-gradient-updates", 1, "--workers", 0, "--seed", 3, "--run-dir", "theirs"),
        *("--optimizer", "clipup", "--max-speed", 0.5, "--target-return", "None"),
    )
    run = learn(
        config="Pendulum-v1", env_kwargs=[{"g": np.float64(9.5)}], hidden_sizes=np.array([8, 4]),
        n=np.int64(4), max_gradient_updates=1, workers=0, seed=3, run_dir=Path("ours"),
        optimizer="clipup", max_speed=0.5, target_return=None,
    )  # fmt: skip
    theirs, ours = read("theirs/latest.safetensors"), read(run.path / "latest.safetensors")
    assert same_run(theirs, ours)
    assert theirs.settings | {"run_dir": "ours"} == ours.settings


def test_wrappers_are_given_with_their_arguments_and_one_needs_no_list():
    few = {"max_gradient_updates": 1, "run_dir": "run"}
    run = learn(**HERE | few, env_wrapper=[(TimeLimit, {"max_episode_steps": 7})])
    assert run.history["episode_length_mean"] == 7
    assert len(repr(run)) < 100
    policy = load_policy("run/latest.safetensors", env_wrapper=[TimeLimit, "max_episode_steps=7"])
    assert policy.settings["env_wrapper"] == run.policy.settings["env_wrapper"]
    learn(**HERE | few | {"run_dir": "alone"}, env_wrapper=FlattenObservation, hidden_sizes=3)


def test_a_class_that_is_registered_keeps_its_limit_of_steps():
    class Listed(Awful):
        def __init__(self, **kwargs: Any) -> None:
            super().__init__(**kwargs)

    gymnasium.register("Listed-v3", Listed, max_episode_steps=3)
    run = learn(**HERE | {"env_name": Listed}, max_gradient_updates=1, run_dir="run")
    assert run.history["episode_length_mean"] == 3
    assert load_policy(run.path / "best.safetensors", env_name=Listed).env_id == "Listed-v3"
    gymnasium.registry.pop("Listed-v3")


def test_wrappers_of_gymnasium_have_their_public_names():
    given, _ = from_keywords({"env_wrapper": [TimeLimit, "max_episode_steps=7"]})
    assert given["env_wrapper"] == ("gymnasium.wrappers:TimeLimit", "max_episode_steps=7")


def test_errors_name_keywords_and_the_commands_in_them_keep_their_flags(tmp_path):
    (tmp_path / "latest.safetensors").touch()
    counters = Counters(3, 15, 100, 1.0, 500, None, 0.1, 0.05)
    unwritten = {"progress.csv": "No space left on device"}
    with pytest.raises(RunError) as raised, errors_in_keywords():
        conclude(Config(), counters, None, tmp_path, None, unwritten)
    complaint, command = str(raised.value).splitlines()
    assert complaint.startswith(f"run_dir {tmp_path}: after ")
    assert command.endswith(f" --restore {tmp_path}/latest.safetensors")
