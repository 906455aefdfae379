"""What policies see of observations in loops of one's own."""

import gymnasium
import numpy as np
import pytest

from es.environments.observations import View
from es.environments.screens import ScreenView
from es.envs import describe_env, make_bare_env, make_env


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


def test_a_screen_in_another_colour_is_looked_at_anew():
    screens = ScreenView()
    for brightness in (0, 255, 51):
        screens(np.full((210, 160, 3), brightness, np.uint8))
        assert screens._view.image == pytest.approx(brightness / 255)


def test_a_screen_with_too_many_colours_is_an_error():
    noise = np.random.default_rng(0).integers(0, 256, (210, 160, 3), dtype=np.uint8)
    with pytest.raises(ValueError, match="more colours"):
        View(make_bare_env(describe_env("PongDeterministic-v4")))(noise)
