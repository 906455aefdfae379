"""What policies see of observations in loops of one's own."""

from typing import Any

import gymnasium
import numpy as np
import pytest

from es.environments.observations import View
from es.environments.screens import ScreenView
from es.envs import describe_env, make_bare_env, make_env
from es.errors import MisfitError


@pytest.mark.parametrize(
    ("name", "kwargs"),
    [
        ("PongDeterministic-v4", []),
        ("ALE/Boxing-v5", ["obs_type=grayscale"]),
        ("ALE/Breakout-v5", ["obs_type=ram"]),
        ("ALE/Pong-v5", ["continuous=True"]),
    ],
)
def test_atari_games_are_seen_as_in_training_to_the_bit(name, kwargs):
    """Returns may agree by chance: of Pong's first steps, say, in which nobody scores."""
    description = describe_env(name, kwargs)
    ours, view = make_env(description), View(make_bare_env(description))
    theirs = gymnasium.make(
        description["id"], disable_env_checker=True, **description["kwargs"]
    )  # fmt: skip
    ours.action_space.seed(0)
    for seed in (3, 4):
        seen, (observation, _) = ours.reset(seed=seed)[0], theirs.reset(seed=seed)
        view.reset()
        for _ in range(30):
            assert np.array_equal(view(observation), seen)
            action = ours.action_space.sample()
            seen, observation = ours.step(action)[0], theirs.step(action)[0]
    ours.close()
    theirs.close()


@pytest.mark.parametrize(
    "wrapper",
    [
        ("gymnasium.wrappers:ClipReward", "min_reward=-1"),
        ("gymnasium.wrappers:TimeLimit", "max_episode_steps=99"),
        ("tests.strange:Weighted", "weight=[2, 1]"),
    ],
)
def test_wrappers_of_rewards_leave_what_is_seen_of_atari_games_to_the_bit(wrapper):
    settings: dict[str, Any] = {"noop_max": 9, "sticky_actions": 0.25, "fire_reset": True}
    name = "BreakoutDeterministic-v4"
    wrapped = describe_env(name, env_wrapper=wrapper, **settings)
    bare, env = make_env(describe_env(name, **settings)), make_env(wrapped)
    for seed in (3, 4):
        expected, seen = bare.reset(seed=seed)[0], env.reset(seed=seed)[0]
        bare.action_space.seed(seed)
        for _ in range(30):
            assert np.array_equal(seen, expected)
            action = bare.action_space.sample()
            expected, seen = bare.step(action)[0], env.step(action)[0]
    view, (screen, _) = (
        View(make_bare_env(wrapped)),
        make_bare_env(describe_env(name)).reset(seed=3),
    )
    view.reset()
    assert np.array_equal(view(screen), make_env(describe_env(name)).reset(seed=3)[0])


@pytest.mark.parametrize(
    ("env", "wrong", "words"),
    [
        ("Pendulum-v1", np.zeros(4), r"shape \(3,\), not ndarray of shape \(4,\)"),
        ("Pendulum-v1", np.zeros((2, 3)), r"shape \(3,\), not ndarray of shape \(2, 3\)"),
        ("PongDeterministic-v4", np.zeros((84, 84), np.uint8), r"shape \(210, 160, 3\)"),
        ("FrozenLake-v1", 16, "a number from 0 to 15"),
        ("FrozenLake-v1", -1, "a number from 0 to 15"),
        ("tests.strange:Parts-v0", {"a": 1}, "a dict of a, b"),
        (
            "tests.strange:Mission-v0",
            {"direction": 0, "image": np.zeros((7, 7, 3), np.uint8), "mission": 1},
            r"\['mission'\] must be a text",
        ),
        ("tests.strange:Parts-v0", {"a": 1, "b": (np.zeros(3),)}, r"\['b'\] must be 2 parts"),
        ("tests.strange:ChannelsFirst-v0", np.zeros((50, 60, 3)), r"shape \(3, 50, 60\)"),
    ],
)
def test_an_observation_that_does_not_fit_is_an_error(env, wrong, words):
    with pytest.raises(ValueError, match=words):
        View(make_bare_env(describe_env(env)))(wrong)


SCREENS = gymnasium.spaces.Box(0, 255, (210, 160, 3), np.uint8)


def test_a_screen_in_another_colour_is_looked_at_anew():
    screens = ScreenView(SCREENS)
    for brightness in (0, 255, 51):
        screens(np.full((210, 160, 3), brightness, np.uint8))
        assert screens._view.image == pytest.approx(brightness / 255)


def test_a_screen_with_many_colours_is_not_rounded_either():
    """The emulator has 128 colours; a wrapper may make more."""
    screens = ScreenView(SCREENS)
    noise = np.random.default_rng(0).integers(0, 256, (210, 160, 3), dtype=np.uint8)
    few = noise // 64 * 64
    for screen in (noise, few):
        screens.reset()
        seen = screens(screen).copy()
        screens.reset()
        np.testing.assert_allclose(screens(screen.astype(np.float32)), seen, atol=1e-4)


def test_a_screen_of_another_shape_is_an_error():
    with pytest.raises(MisfitError, match=r"should be an image of the shape \(210, 160, 3\)"):
        ScreenView(SCREENS)(np.zeros((84, 84, 3), np.uint8))
