"""Recorded episodes, decoded again."""

import os
from pathlib import Path
from unittest.mock import Mock

import gymnasium
import numpy as np
import pytest
from PIL.GifImagePlugin import GifImageFile

from es.envs import describe_env, make_env
from es.rendering.show_frames import ShowFrames, as_bytes
from es.rendering.video import CAPTION_HEIGHT
from tests.rendering.videos import decoded, differing
from tests.test_test import rewards


def test_every_step_is_a_frame_at_the_environments_speed(program, checkpoint):
    record = ("--video", "new/out.mp4", "--episodes", 2)
    status, out, err = program("--test", "--restore", checkpoint, *record)
    assert (status, err) == (0, "")
    steps = [int(line.split()[-2]) for line in out.splitlines() if line.startswith("Episode")]
    frames, speed = decoded("new/out.mp4")
    assert (len(frames), speed) == (sum(steps) + 2, 50)
    assert differing(frames) > 0.8 * len(frames)
    assert frames[0].shape == (400 + CAPTION_HEIGHT, 600, 3)
    captions = {frame[:CAPTION_HEIGHT].tobytes() for frame in frames}
    assert len(captions) > max(steps) / 2  # the return counts up
    seconds = len(frames) / 50
    assert out.splitlines()[-1] == f"Recorded new/out.mp4: {len(frames)} frames, {seconds:.1f} s"
    assert os.listdir("new") == ["out.mp4"]


def test_the_same_episodes_are_recorded_as_are_played_unseen(program, checkpoint):
    record = ("--video", "a.mp4", "--no-render")  # which only says that no window is wanted
    recorded = program("--test", "--restore", checkpoint, *record, "--episodes", 2)[1]
    assert Path("a.mp4").exists()
    unseen = program("--test", "--restore", checkpoint, "--no-render", "--episodes", 2)[1]
    assert rewards(recorded) == rewards(unseen)


@pytest.mark.parametrize("skip", [1, 2])
def test_an_environment_may_pay_arrays_and_have_any_attributes(program, skip):
    crowded = ("--env-name", "tests.strange:Crowded-v0", "--small-net", "--workers", 0)
    options = (*crowded, "--n", 4, "--max-gradient-updates", 1, "--frame-skip", skip)
    status, out, err = program(*options, "--run-dir", "run")
    assert (status, err) == (0, "")
    watched = ("--test", "--restore", "run", *crowded[:2], "--video", "out.mp4", "--episodes", 1)
    status, out, err = program(*watched)
    assert (status, err) == (0, "")
    assert float(rewards(out)[0]) >= 4


def test_a_viewer_is_told_the_episode_and_its_return_so_far(monkeypatch):
    seen = []
    monkeypatch.setattr("es.rendering.show_frames.Picture", lambda *what: seen.append(what[1:]))
    viewer = Mock()
    env = ShowFrames(make_env(describe_env("CartPole-v1"), "rgb_array"), viewer, "--video")
    for _ in range(2):
        env.reset(seed=1)
        env.step(0)
        env.step(1)
    env.close()
    assert seen == [(1, 0.0), (1, 1.0), (1, 2.0), (2, 0.0), (2, 1.0), (2, 2.0)]
    assert viewer.show.call_count == 6
    assert viewer.close.call_count == 1


def test_pictures_with_transparency_are_shown_without_it():
    class Transparent(gymnasium.Env):
        def reset(self, **_):
            return np.zeros(3), {}

        def render(self):
            return np.arange(64, dtype=np.uint8).reshape(4, 4, 4)

    viewer = Mock()
    ShowFrames(Transparent(), viewer, "--video").reset()
    (picture,) = viewer.show.call_args.args
    assert np.array_equal(picture.pixels, np.arange(64).reshape(4, 4, 4)[..., :3])


@pytest.mark.parametrize("bright", [np.float32(0.8), 204.0, 204])
def test_pictures_of_floats_are_shown_as_bright_as_those_of_bytes(bright):
    assert as_bytes(np.full((4, 4, 3), bright)).tolist() == np.full((4, 4, 3), 204).tolist()


def test_a_small_picture_is_enlarged_and_a_gif_is_kept_small(program):
    game = ("--env-name", "PongDeterministic-v4", "--max-episode-length", 30)
    program(*game, "--n", 2, "--workers", 0, "--max-gradient-updates", 1, "--run-dir", "run")
    for name in ("pong.mp4", "pong.gif"):
        status, _, err = program("--test", "--restore", "run/latest.safetensors", "--video", name)
        assert (status, err) == (0, "")
    frames, speed = decoded("pong.mp4")
    assert (len(frames), speed) == (31, 15)
    assert frames[0].shape == (3 * 210 + CAPTION_HEIGHT, 3 * 160, 3)
    with GifImageFile("pong.gif") as gif:
        assert (gif.n_frames, gif.width) == (31, 320)
        duration = 0
        for frame in range(gif.n_frames):
            gif.seek(frame)
            duration += gif.info["duration"]
    assert duration == pytest.approx(31 / 15 * 1000, abs=30)


def test_a_directory_makes_a_video_of_each_snapshot(program, checkpoint):
    status, out, err = program("--test", "--restore", "run", "--video", "v/out.mp4")
    assert (status, err) == (0, "")
    found = rewards(out)
    names = ["update-1", "update-2", "update-3", "best", "latest"]
    expected = [
        f"out-{name}-return-{reward:.2f}.mp4" for name, reward in zip(names, found, strict=True)
    ]
    assert sorted(os.listdir("v")) == sorted(expected)
    for name, reward in zip(expected, found, strict=True):
        assert len(decoded(f"v/{name}")[0]) == reward + 1
        assert f"Recorded v/{name}" in out
