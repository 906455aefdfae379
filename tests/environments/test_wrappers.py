from typing import Any

import gymnasium
import numpy as np
import pytest

from es.algorithm.noise import Stream, derive_seeds
from es.environments.wrappers import RandomStart, layers
from es.envs import describe_env, make_bare_env, make_env, max_steps
from es.errors import UsageError
from tests.fakes import Counting


class Plain(gymnasium.Env):
    """Makes a Gymnasium environment of one of the tests' own."""

    def __init__(self, env: Any) -> None:
        self.action_space = gymnasium.spaces.Discrete(2)
        self.reset, self.step = env.reset, env.step  # type: ignore[method-assign]


def base(env: gymnasium.Env) -> Any:
    return env.unwrapped


def test_each_action_is_repeated_and_rewards_add_up():
    plain, skipping = (
        make_env(describe_env("Pendulum-v1")),
        make_env(describe_env("Pendulum-v1", frame_skip=3)),
    )
    plain.reset(seed=1)
    skipping.reset(seed=1)
    for _ in range(5):
        rewards = [plain.step(np.array([1.0], np.float32))[1] for _ in range(3)]
        observation, reward, *_ = skipping.step(np.array([1.0], np.float32))
        assert reward == pytest.approx(sum(map(float, rewards)))
    assert observation == pytest.approx(base(plain)._get_obs())


def test_an_episode_ends_when_it_does_without_skipping():
    """MountainCar is cut off after 200 steps, which 3 does not divide."""
    description = describe_env("MountainCar-v0", frame_skip=3)
    assert max_steps(description) is None
    env = make_env(description)
    env.reset(seed=0)
    outcomes = [env.step(1) for _ in range(67)]
    assert [outcome[3] for outcome in outcomes] == [False] * 66 + [True]
    assert sum(float(outcome[1]) for outcome in outcomes) == -200


def test_the_emulator_skips_frames_itself():
    for name in ("PongDeterministic-v4", "ALE/Pong-v5", "PongNoFrameskip-v4"):
        description = describe_env(name, frame_skip=2, sticky_actions=0.1)
        assert description["frame_skip"] == 1
        assert description["kwargs"]["repeat_action_probability"] == 0.1
        env = make_env(description)
        start = base(env).ale.getEpisodeFrameNumber()
        env.reset(seed=1)
        env.step(0)
        assert base(env).ale.getEpisodeFrameNumber() - start == 2


@pytest.mark.parametrize("name", ["PongDeterministic-v4", "CartPole-v1"])
def test_a_random_start_is_drawn_from_the_episodes_seed(name):
    """No-ops for a game, and random actions for all others."""
    description = describe_env(name)
    env, plain = make_env(description | {"noop_max": 9}), make_env(description)
    found = set()
    for seed in range(12):
        observation = env.reset(seed=seed)[0].copy()
        drawn = derive_seeds(seed, 0, Stream.NOOPS, 1)[0]
        expected = plain.reset(seed=seed)[0]
        actions = gymnasium.spaces.Discrete(2, seed=drawn % 2**32)
        for _ in range(drawn % 10):
            action = actions.sample() if name == "CartPole-v1" else 0
            expected = plain.step(action)[0]
        found.add(drawn % 10)
        assert np.array_equal(observation, expected)
        assert np.array_equal(env.step(1)[0], plain.step(1)[0])
    assert len(found) > 5


@pytest.mark.parametrize(("length", "most", "expected"), [(1000, 3, 4), (5, 30, 5)])
@pytest.mark.parametrize("noops", [True, False])
def test_a_start_has_from_no_step_to_most_or_to_one_before_the_episodes_end(
    length, most, expected, noops
):
    env: Any = Counting(length=length)
    wrapped = RandomStart(Plain(env), most, noops=noops)
    played: list[int] = []

    def pay(action, over):
        played.append(action)
        return 0.0

    env.reward = pay
    counts = set()
    for seed in range(100):
        played.clear()
        wrapped.reset(seed=seed)
        counts.add(env.steps)
        if len(played) > env.steps:  # the end of the episode: again with fewer of the same actions
            assert played[length:] == played[: env.steps]
    assert counts == {*range(expected)}


def test_fire_begins_each_life_whatever_is_chosen():
    waiting, env = (
        make_env(describe_env("BreakoutDeterministic-v4", fire_reset=fire))
        for fire in (False, True)
    )
    lengths = []
    for each in (waiting, env, env):
        each.reset(seed=1)
        steps = (step for step in range(1, 400) if each.step(0)[2])
        lengths.append(next(steps, None))
    assert lengths[0] is None
    assert lengths[1] == lengths[2] == 125  # of five lives
    env.close()
    waiting.close()


def test_fire_comes_after_the_no_ops():
    description = describe_env("BreakoutDeterministic-v4", noop_max=30)
    env, plain = make_env(description | {"fire_reset": True}), make_env(description)
    for seed in range(3):
        assert np.array_equal(env.reset(seed=seed)[0], plain.reset(seed=seed)[0])
        for chosen, played in ((0, 1), (3, 2), (0, 0), (3, 3)):
            assert np.array_equal(env.step(chosen)[0], plain.step(played)[0])
    env.close()
    plain.close()


@pytest.mark.parametrize(
    ("name", "arguments"), [("FreewayDeterministic-v4", []), ("ALE/Pong-v5", ["continuous=True"])]
)
def test_fire_is_refused_where_there_is_no_such_action(name, arguments):
    with pytest.raises(UsageError, match=r"--fire-reset: ALE/\w+-v5 has no action FIRE"):
        make_env(describe_env(name, arguments, fire_reset=True))


@pytest.mark.parametrize(
    "setting", [{"noop_max": 30}, {"sticky_actions": 0.25}, {"fire_reset": True}]
)
def test_settings_of_atari_games_are_errors_elsewhere(setting):
    with pytest.raises(UsageError, match=r"apply only to Atari games. Remove them for CartPole-v1"):
        describe_env("CartPole-v1", **setting)


class Sampling(gymnasium.Env):
    """Draws from its spaces, in a reset and in a step."""

    def __init__(self, **_):
        self.observation_space = gymnasium.spaces.Dict(
            a=gymnasium.spaces.Box(-1, 1, (2,)), b=gymnasium.spaces.Discrete(9)
        )
        self.action_space = gymnasium.spaces.Discrete(1000)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.goal = self.action_space.sample()
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), float(self.goal), False, False, {}


def test_an_episode_that_draws_from_the_spaces_depends_on_its_seed_alone():
    gymnasium.register("Sampling-v0", Sampling)
    fresh, used = (make_env(describe_env("Sampling-v0")) for _ in range(2))
    del gymnasium.registry["Sampling-v0"]

    def play(env, seed):
        return env.reset(seed=seed)[0].tolist(), env.step(0)[0].tolist(), env.step(0)[1]

    play(used, 1)
    assert play(used, 7) == play(fresh, 7) != play(fresh, 8)


# ---- --env-wrapper ----

FILTER = "gymnasium.wrappers:FilterObservation"


def wrapped(name, *words):
    return describe_env(name, env_wrapper=words)


def test_wrappers_lie_around_the_environment_the_first_one_innermost():
    description = wrapped(
        "tests.strange:Mission-v0", FILTER, "filter_keys=['image', 'mission']", FILTER,
        "filter_keys=['image']", "gymnasium.wrappers:FlattenObservation",
    )  # fmt: skip
    bare = make_bare_env(description)
    names = [type(layer).__name__ for layer in layers(bare)]
    assert names[:3] == ["FlattenObservation", "FilterObservation", "FilterObservation"]
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


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([FILTER.replace("Filter", "Filer")], "did you mean FilterObservation"),
        (["nowhere:Wrapper"], r"cannot import nowhere \(ModuleNotFoundError: No module"),
        (["tests.strange:Weighted"], r"cannot be made \(TypeError.*weight"),
        (["inspect:getdoc"], "makes a str, not an environment"),
        (["gymnasium.wrappers:NormalizeObservation"], "Remove it. --obs-norm"),
        (["gymnasium.wrappers:NormalizeReward"], "Remove it"),
    ],
)
def test_what_is_no_wrapper_is_an_error(words, complaint):
    with pytest.raises(UsageError, match=f"(?s)--env-wrapper {words[0]}.*{complaint}"):
        make_env(wrapped("CartPole-v1", *words))


def test_a_policy_can_be_played_in_other_wrappers(program):
    program.train("--max-gradient-updates", 1, "--run-dir", "run")
    test = ("--test", "--no-render", "--restore", "run", "--episodes", 1)
    other = ("--env-wrapper", "gymnasium.wrappers:TimeLimit", "max_episode_steps=3")
    assert ", 3 steps\n" in program(*test, *other)[1]
