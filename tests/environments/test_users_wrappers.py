"""Wrappers of a user's around an environment (--env-wrapper)."""

import re

import gymnasium
import pytest
from gymnasium.wrappers import NormalizeObservation, NormalizeReward, TimeLimit

from es.envs import describe_env, make_bare_env, make_env, max_steps
from es.errors import UsageError
from tests.checkpoints import read, same_run, settings


@pytest.fixture
def registered():
    """Registers a function that makes an environment, until the test ends; its name."""

    def register(make):
        gymnasium.register("Registered-v0", make)
        return "Registered-v0"

    yield register
    del gymnasium.registry["Registered-v0"]


FILTER = "gymnasium.wrappers:FilterObservation"


def wrapped(name, *words):
    return describe_env(name, env_wrapper=words)


def test_wrappers_lie_around_the_environment_the_first_one_innermost():
    description = wrapped(
        "tests.strange:Mission-v0", FILTER, "filter_keys=['image', 'mission']", FILTER,
        "filter_keys=['image']", "gymnasium.wrappers:FlattenObservation",
    )  # fmt: skip
    bare = make_bare_env(description)
    assert re.findall(r"\w+Observation", str(bare)) == ["FlattenObservation"] + 2 * [
        "FilterObservation"
    ]
    assert bare.observation_space.shape == make_env(description).observation_space.shape == (147,)


def test_an_environment_in_a_wrapper_counts_its_own_steps():
    """Some wrappers ask for the limit, and others play several steps as one."""
    description = wrapped("MountainCar-v0", "gymnasium.wrappers:TimeAwareObservation")
    assert max_steps(description) is None
    env = make_env(description)
    env.reset(seed=0)
    assert [env.step(1)[3] for _ in range(200)] == [False] * 199 + [True]


def test_lists_are_arrays_where_a_wrapper_asks_for_an_array():
    weight = "weight=[0.5, 2]"
    env = make_env(wrapped("CartPole-v1", "tests.strange:Weighted", weight, "cost=-3"))
    env.reset(seed=0)
    assert env.step(0)[1] == 0.5 - 6


def test_lists_are_arrays_for_the_wrappers_of_gymnasium():
    """Whose annotations are unions, in which a number stays one."""
    rescale, box = (
        "gymnasium.wrappers:RescaleObservation",
        ("min_obs=[0, 0, 0]", "max_obs=[1, 2, 3]"),
    )
    space = make_env(wrapped("Pendulum-v1", rescale, *box)).observation_space
    assert isinstance(space, gymnasium.spaces.Box)
    assert space.high.tolist() == [1, 2, 3]
    space = make_env(wrapped("Pendulum-v1", rescale, "min_obs=0", "max_obs=2")).observation_space
    assert isinstance(space, gymnasium.spaces.Box)
    assert space.high.tolist() == [2, 2, 2]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([FILTER.replace("Filter", "Filer")], f"has no such wrapper; did you mean {FILTER}"),
        (["nowhere:Wrapper"], r"cannot import nowhere \(ModuleNotFoundError: No module"),
        (["tests.strange:Weighted"], r"cannot be made \(TypeError.*weight"),
        (["tests.strange:BOX"], "tests.strange has no such wrapper$"),
        (["inspect:getdoc"], "makes a str, and not an environment"),
        (["gymnasium.wrappers:NormalizeObservation"], "give --obs-norm"),
        (["gymnasium.wrappers:NormalizeReward"], "remove it"),
        (["gymnasium.wrappers:RecordVideo", "video_folder=x"], "give --video-every"),
    ],
)
def test_what_is_no_wrapper_is_an_error(words, said):
    with pytest.raises(UsageError, match=f"(?s)--env-wrapper {words[0]}.*{said}"):
        make_env(wrapped("CartPole-v1", *words))


class Running(NormalizeObservation):
    """A wrapper of a user's own."""


class RunningMeanStd:
    """As other libraries have it."""


def learning():
    env = gymnasium.make("CartPole-v1").unwrapped
    setattr(env, "seen", RunningMeanStd())  # noqa: B010 (an environment of a user's own would)
    return env


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: NormalizeObservation(gymnasium.make("CartPole-v1")), "NormalizeObservation"),
        (lambda: TimeLimit(Running(gymnasium.make("CartPole-v1")), 9), "Running"),
        (lambda: NormalizeReward(gymnasium.make("CartPole-v1")), "NormalizeReward"),
        (learning, "CartPoleEnv"),
    ],
)
def test_what_learns_from_observations_inside_an_environment_is_refused(registered, make, name):
    env_name = registered(make)
    with pytest.raises(UsageError, match=f"^--env-name {env_name}: {name} keeps .*--obs-norm"):
        make_env(describe_env(env_name))


def test_what_has_learned_and_learns_no_more_is_taken(registered):
    def make():
        env = NormalizeObservation(gymnasium.make("CartPole-v1"))
        env.update_running_mean = False
        return env

    assert make_env(describe_env(registered(make))).reset(seed=0)[0].shape == (4,)


RUN = ("--n", 2, "--seed", 1, "--max-episode-length", 6, "--max-gradient-updates")
OWN = ("--env-wrapper", "tests.strange:Weighted", "weight=[0.5, 2]", "cost=3")


def train(program, updates, folder, *flags):
    status, out, err = program(*RUN, updates, "--run-dir", folder, *flags)
    assert (status, err) == (0, "")
    return out, f"{folder}/latest.safetensors"


def test_a_run_in_a_wrapper_goes_on_to_the_bit_and_its_workers_play_the_same(program):
    cartpole = ("--env-name", "CartPole-v1", *OWN)
    out, path = train(program, 4, "whole", "--workers", 0, *cartpole)
    train(program, 2, "parts", "--workers", 2, *cartpole)
    _, parts = train(
        program, 4, "parts", "--workers", 0, "--restore", "parts/latest.safetensors", *OWN
    )
    assert same_run(read(path), read(parts))
    assert settings(path).env_wrapper == OWN[1:]
    assert float(re.findall(r"Unperturbed reward: (.*)", out)[0]) == 6 * 6.5
    assert " --trust\n" in out


def test_a_checkpoint_does_not_choose_what_is_imported(program):
    _, path = train(program, 1, "run", "--workers", 0, "--env-name", "CartPole-v1", *OWN)
    test = ("--test", "--no-render", "--restore", path, "--episodes", 1)
    assert program(*test)[0] == 2
    assert program(*test, "--trust")[0] == 0
    other = ("--env-wrapper", "gymnasium.wrappers:TimeLimit", "max_episode_steps=3")
    assert "Episode 1: reward 3.00, 3 steps\n" in program(*test, *other)[1]
    status, _, err = program("--restore", path, *other)
    assert status == 2
    assert "--env-wrapper gymnasium.wrappers:TimeLimit max_episode_steps=3 differs from" in err


def test_a_run_goes_on_without_its_wrappers_if_told_so(program):
    _, path = train(program, 1, "run", "--workers", 0, "--env-name", "CartPole-v1", *OWN)
    status, _, err = program("--restore", path, "--env-wrapper")
    assert status == 2
    assert "give --override to change" in err
    train(program, 2, "bare", "--workers", 0, "--restore", path, "--override", "--env-wrapper")
    assert settings("bare/latest.safetensors").env_wrapper == ()


def test_those_of_gymnasium_need_not_be_named_again(program):
    keys = ("--env-wrapper", FILTER, "filter_keys=('direction', 'mission')")
    env = ("--env-name", "tests.strange:Mission-v0")
    out, path = train(program, 1, "run", "--workers", 0, *env, *keys)
    assert "is seen as a vector of 4 numbers" in out
    train(program, 2, "run", "--workers", 0, "--restore", path, *env)
