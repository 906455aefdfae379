import re
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.envs.classic_control import CartPoleEnv

from es.envs import (
    check_first_step,
    describe_env,
    is_unlimited,
    make_bare_env,
    make_env,
    max_steps,
    register_creator,
)
from es.errors import UsageError
from tests.processes import run_python


def play(env: gymnasium.Env, seed: int, steps: int = 60) -> list[float]:
    """Rewards and a digest of the observations of an episode of random actions."""
    env.reset(seed=seed)
    env.action_space.seed(seed)
    trace = []
    for _ in range(steps):
        observation, reward, terminated, truncated, _ = env.step(env.action_space.sample())
        trace += [float(reward), float(np.sum(observation))]
        if terminated or truncated:
            break
    return trace


@pytest.mark.parametrize(
    "name",
    "CartPole-v1 Acrobot-v1 MountainCar-v0 LunarLander-v3 BipedalWalker-v3 Pendulum-v1 "
    "HalfCheetah-v5 Humanoid-v5 Pusher-v5 Taxi-v4 PongDeterministic-v4 "
    "FreewayDeterministic-v0".split(),
)
def test_an_episode_depends_on_its_seed_and_actions_alone(name):
    env, other = make_env(describe_env(name)), make_env(describe_env(name))
    steps = 200 if name == "BipedalWalker-v3" else 60
    expected = play(env, 7, steps)
    for seed in (1, 2, 3):
        play(env, seed, steps)
    assert play(env, 7, steps) == expected
    play(other, 4, steps)
    assert play(other, 7, steps) == expected
    assert play(env, 8, steps) != expected
    env.close()
    other.close()


def test_a_fresh_world_is_like_the_one_that_the_environment_made():
    found = []
    for env in (make_env(describe_env("LunarLander-v3")), gymnasium.make("LunarLander-v3")):
        env.reset(seed=3)
        env.action_space.seed(3)
        for _ in range(30):
            env.step(env.action_space.sample())
        base: Any = env.unwrapped
        found.append([tuple(body.position) for body in base.world.bodies])
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("CartPole", "--list-envs WORD"),
        ("cartpole-v1", "Did you mean: `CartPole`?"),
        ("tests.strange:Strange", "one that a module registers is MODULE:NAME"),
        ("no.such.module:Env-v0", "cannot import no.such.module"),
        ("Pong/Pong/Pong-v1", "no such environment"),
    ],
)
def test_an_unknown_name_is_an_error_with_a_hint(typed, words):
    with pytest.raises(UsageError, match=f"--env-name {typed}: .*{re.escape(words)}"):
        describe_env(typed)


def test_a_class_stands_for_its_newest_version():
    assert register_creator(CartPoleEnv) == "CartPole-v1"


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ("render_mode=human", "render_mode: --test shows the policy"),
        ("max_episode_steps=1.5", "max_episode_steps=1.5 must be a whole number"),
        ("max_episode_steps=0", "max_episode_steps=0 must be a whole number"),
    ],
)
def test_an_argument_that_cannot_be_given_is_an_error(argument, words):
    with pytest.raises(UsageError, match=f"--env-kwargs {words}"):
        describe_env("CartPole-v1", [argument])


def test_the_loop_is_told_when_to_cut_an_episode_off():
    """And the environment does not do so itself."""
    description = describe_env("MountainCar-v0")
    assert max_steps(description) == 200
    env = make_env(description)
    env.reset(seed=0)
    assert not any(env.step(1)[3] for _ in range(300))
    assert max_steps(describe_env("PongDeterministic-v4")) is None


@pytest.mark.parametrize("wrapper", [(), ("gymnasium.wrappers:FlattenObservation",)])
def test_the_limit_of_steps_may_be_another_one(wrapper):
    description = describe_env("MountainCar-v0", ["max_episode_steps=250"], wrapper)
    assert not is_unlimited(description)
    env = make_bare_env(description, endless=False)
    env.reset(seed=0)
    assert [env.step(1)[3] for _ in range(250)] == [False] * 249 + [True]
    assert max_steps(description) == (None if wrapper else 250)


class Tensors(gymnasium.ObservationWrapper):
    """Shows tensors of torch, as environments that simulate with it do."""

    def observation(self, observation):
        return torch.tensor(observation)


def test_observations_that_do_not_compare_as_arrays_are_checked_and_repeat():
    env = Tensors(gymnasium.make("CartPole-v1"))
    assert check_first_step(env, "CartPole-v1")


def test_nothing_is_said_on_the_way():
    """In a process of its own, since the emulator shows its banner once."""
    program = (
        "from envs import describe_env, make_env\n"
        "for name in ('CartPole-v0', 'PongDeterministic-v0', 'LunarLander-v3'):\n"
        "    env = make_env(describe_env(name)); env.reset(seed=0); env.step(0); env.close()"
    )
    result = run_python(program)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


# ---- the first step ----


class Scripted(gymnasium.Env):
    """Returns what a test wants: `first` and `outcome` may be functions."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, first, outcome):
        self.first, self.outcome = first, outcome

    def reset(self, *, seed=None, options=None):
        return self.first() if callable(self.first) else self.first

    def step(self, action):
        return self.outcome() if callable(self.outcome) else self.outcome


def burn():
    raise RuntimeError("motor on\nfire")


OBSERVATION = np.zeros(2, np.float32)
FIRST: Any = (OBSERVATION, {})
NEXT: Any = (OBSERVATION, 1.0, False, False, {})


@pytest.mark.parametrize(
    ("first", "outcome", "words"),
    [
        (burn, NEXT, "RuntimeError: motor on fire"),
        (OBSERVATION, NEXT, r"its reset\(\) does not return \(observation, info\)"),
        (FIRST, (OBSERVATION, 1.0, False, {}), r"its step\(\) returns 4 values, not \(observation"),
        ((np.zeros(3), {}), NEXT, r"shape \(3,\) .* numbers in the shape \(2,\)"),
        (FIRST, (np.array([0, np.inf]), 1.0, False, False, {}), "not finite"),
        (FIRST, (OBSERVATION, np.nan, False, False, {}), "reward is nan"),
        (FIRST, (OBSERVATION, np.array([1.0, 2.0]), False, False, {}), "vector.*LinearReward"),
        (FIRST, (OBSERVATION, "much", False, False, {}), "reward is 'much', not a number"),
    ],
)
def test_what_does_not_is_one_line(first, outcome, words):
    with pytest.raises(UsageError, match=rf"Some-v0: cannot be played .*({words})") as error:
        check_first_step(Scripted(first, outcome), "Some-v0")
    assert "\n" not in error.value.message


def test_a_start_that_differs_from_itself_is_noticed():
    own = np.random.default_rng(0)
    for draw, same in ((np.random.random, True), (own.random, False)):
        env = Scripted(lambda draw=draw: (draw(2), {}), NEXT)
        np.random.seed(3)
        expected = np.random.random()
        np.random.seed(3)
        assert check_first_step(env, "Some-v0") is same
        assert np.random.random() == expected  # the program's own draws stay as they were


def test_the_simulator_is_imported_for_the_workers():
    program = "import es.environments.preload, sys; print('mujoco' in sys.modules)"
    for name, loaded in (("HalfCheetah-v5", True), ("Nonsense-v0", False)):
        result = run_python(program, ES_PRELOAD=name)
        assert (result.stdout, result.stderr) == (f"{loaded}\n", "")
