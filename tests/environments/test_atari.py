import re

import ale_py
import cv2
import gymnasium
import numpy as np
import pytest

from es.environments.atari import AtariImages
from es.environments.images import ImageNormalizer
from es.envs import describe_env, make_env

GAMES = sorted(
    match[1] for key in gymnasium.registry if (match := re.fullmatch(r"ALE/(\w+)-v5", key))
)


@pytest.mark.parametrize("game", GAMES)
def test_old_atari_names_keep_frameskip_and_stickiness(game):
    skip = 3 if game == "SpaceInvaders" else 4
    for version, sticky in (("v0", 0.25), ("v3", 0.0), ("v4", 0.0)):
        assert describe_env(f"{game}Deterministic-{version}") == {
            "id": f"ALE/{game}-v5",
            "kwargs": {"frameskip": skip, "repeat_action_probability": sticky},
            "frame_skip": 1,
            "noop_max": 0,
        }


def test_every_game_of_the_emulator_is_covered():
    assert len(GAMES) > 100
    assert {"Pong", "Breakout", "SpaceInvaders", "MontezumaRevenge"} <= set(GAMES)


@pytest.mark.parametrize(
    ("name", "repeats"), [("PongDeterministic-v4", 0.0), ("ALE/Pong-v5", 0.25)]
)
def test_the_emulator_is_made_with_the_described_settings(name, repeats):
    env = make_env(describe_env(name))
    emulator = env.unwrapped
    assert isinstance(emulator, ale_py.AtariEnv)
    assert emulator.ale.getFloat("repeat_action_probability") == repeats
    start = emulator.ale.getEpisodeFrameNumber()
    env.reset(seed=0)
    env.step(0)
    assert emulator.ale.getEpisodeFrameNumber() - start == 4


ATARI = [
    ("ALE/Pong-v5", {}),
    ("PongDeterministic-v4", {}),
    ("ALE/Breakout-v5", {"repeat_action_probability": 0.25}),
    ("ALE/SpaceInvaders-v5", {"frameskip": (2, 5)}),
    ("ALE/Berzerk-v5", {}),
    ("ALE/Boxing-v5", {"obs_type": "grayscale"}),
    ("ALE/Pong-v5", {"repeat_action_probability": 0.9}),  # the last action of the episode before
    ("ALE/Pong-v5", {"max_num_frames_per_episode": 200}),
    ("Pong-v4", {}),
]


@pytest.mark.parametrize(("name", "kwargs"), ATARI)
def test_atari_games_are_played_as_gymnasium_plays_them(name, kwargs):
    """The same rewards and ends for the same seed, and images as defined: crop, 80x80, 42x42, mean
    of the colours, 0..1, but for what rounding to bytes in between loses."""
    description = describe_env(name)
    description["kwargs"].update(kwargs)
    ours = make_env(description)
    theirs = gymnasium.make(description["id"], disable_env_checker=True, **description["kwargs"])
    assert isinstance(ours, AtariImages)
    for seed in (5, 2**31 - 1, 5):
        frame, _ = theirs.reset(seed=seed)
        observation, _ = ours.reset(seed=seed)
        normalizer = ImageNormalizer()
        normalizer.reset()
        ours.action_space.seed(seed)
        for _ in range(150):
            small = cv2.resize(cv2.resize(frame[34:194, :160], (80, 80)), (42, 42))
            expected = small.reshape(42, 42, -1).mean(axis=2, dtype=np.float32) / 255
            np.testing.assert_allclose(ours._view.image.reshape(42, 42), expected, atol=0.004)
            assert np.array_equal(observation, normalizer(ours._view.image))
            action = ours.action_space.sample()
            frame, *expected_outcome, _ = theirs.step(action)
            observation, *outcome, _ = ours.step(action)
            assert outcome == expected_outcome
            if outcome[1] or outcome[2]:
                break
    ours.close()
    theirs.close()


def test_most_games_start_again_without_loading():
    pong, berzerk = (make_env(describe_env(f"ALE/{name}-v5")) for name in ("Pong", "Berzerk"))
    assert isinstance(pong, AtariImages)
    assert isinstance(berzerk, AtariImages)
    assert pong._restart is not None
    assert berzerk._restart is None  # it draws random numbers while it starts


def test_an_atari_game_without_a_seed_is_played_on():
    env = make_env(describe_env("PongDeterministic-v4"))
    env.reset(seed=1)
    env.step(0)
    assert env.reset()[0].std() == pytest.approx(1, abs=1e-3)


def test_each_episode_starts_with_a_fresh_normaliser():
    env = make_env(describe_env("PongDeterministic-v4"))
    first = env.reset(seed=1)[0].copy()
    for _ in range(30):
        env.step(2)
    again, _ = env.reset(seed=1)
    assert np.array_equal(first, again)
    assert abs(float(first.mean())) < 1e-4  # the first frame is normalised by itself
    assert float(first.std()) == pytest.approx(1, abs=1e-3)
