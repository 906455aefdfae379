"""Atari games: names, images, sticky actions and the start of an episode."""

import re
from typing import Any

import ale_py
import gymnasium
import numpy as np
import pytest

from es.environments.atari import AtariImages
from es.envs import Preprocessor, describe_env, make_bare_env, make_env

GAMES = sorted(
    match[1] for key in gymnasium.registry if (match := re.fullmatch(r"ALE/(\w+)-v5", key))
)


def test_old_names_keep_frameskip_and_stickiness_of_every_game():
    assert len(GAMES) > 100
    for game in GAMES:
        skip = 3 if game == "SpaceInvaders" else 4
        for version, sticky in (("v0", 0.25), ("v3", 0.0), ("v4", 0.0)):
            assert describe_env(f"{game}Deterministic-{version}") == {
                "id": f"ALE/{game}-v5",
                "kwargs": {"frameskip": skip, "repeat_action_probability": sticky},
                "wrappers": [],
                "frame_skip": 1,
                "noop_max": 0,
                "fire_reset": False,
                "keeps_shape": False,
            }


@pytest.mark.parametrize(
    ("name", "kwargs"),
    [
        ("PongDeterministic-v4", {}),
        ("BerzerkDeterministic-v4", {}),  # whose reset draws random numbers
        ("SpaceInvadersDeterministic-v4", {"frameskip": (2, 5)}),
        ("BoxingDeterministic-v4", {"obs_type": "grayscale"}),
        ("PongDeterministic-v4", {"max_num_frames_per_episode": 200}),
    ],
)
def test_a_game_is_played_as_gymnasium_plays_it_and_seen_as_its_screens_are(name, kwargs):
    """The fast path, and the matrices over Gymnasium's screens, which load_policy uses."""
    description = describe_env(name)
    description["kwargs"].update(kwargs)
    env: Any = make_env(description)
    assert isinstance(env, AtariImages)
    bare = make_bare_env(description)
    preprocess = Preprocessor(bare, description)
    for seed in (5, 2**31 - 1, 5):
        screen, _ = bare.reset(seed=seed)
        observation, _ = env.reset(seed=seed)
        preprocess.reset()
        env.action_space.seed(seed)
        for _ in range(100):
            np.testing.assert_allclose(preprocess(screen), observation, atol=1e-4)
            action = env.action_space.sample()
            screen, *expected, _ = bare.step(action)
            observation, *outcome, _ = env.step(action)
            assert outcome == expected
            if outcome[1] or outcome[2]:
                break
    env.close()
    bare.close()


def record(env):
    """Return the list of codes that the environment plays from now on, a frame each."""
    played, act = [], env._act

    def play(code):
        played.append(code)
        return act(code)

    env._act = play
    return played


def test_sticky_actions_repeat_frames_by_the_described_probability():
    env: Any = make_env(describe_env("ALE/Pong-v5"))
    assert isinstance(env.unwrapped, ale_py.AtariEnv)
    assert env.unwrapped.ale.getFloat("repeat_action_probability") == 0  # or both would repeat
    played = record(env)
    env.reset(seed=1)
    for step in range(500):
        env.step(2 + step % 2)
    chosen = np.array([env._actions[2 + step % 2] for step in range(500)])
    # Frame k of a step still plays the action before it if all frames up to it have repeated.
    for frame in (0, 1):
        share = (np.array(played).reshape(-1, 4)[:, frame] != chosen).mean()
        assert share == pytest.approx(0.25 ** (frame + 1), abs=0.05)


def test_the_last_action_of_an_episode_is_not_repeated_in_the_next():
    env: Any = make_env(describe_env("ALE/Pong-v5", sticky_actions=1.0))
    env.reset(seed=1)
    env._played = env._actions[2]
    env.reset(seed=1)
    played = record(env)
    env.step(2)
    assert {*played} == {ale_py.Action.NOOP}
