"""Recorded episodes, decoded again."""

import itertools
import os
import signal
from pathlib import Path
from unittest.mock import Mock

import cv2
import gymnasium
import numpy as np
import pytest
from PIL.GifImagePlugin import GifImageFile

from es.envs import describe_env, make_env
from es.rendering import video
from es.rendering.show_frames import ShowFrames
from es.rendering.video import CAPTION_HEIGHT
from tests.processes import descendants
from tests.test_test import rewards


@pytest.fixture
def checkpoint(program):
    """Of a policy that keeps the pole up for a while."""
    program.train("--max-gradient-updates", 3, "--run-dir", "run", "--save-every", 1)
    return "run/latest.safetensors"


def decoded(path):
    """Its frames, (height, width, 3), and how many are to be shown in a second."""
    reader = cv2.VideoCapture(str(path))
    speed = reader.get(cv2.CAP_PROP_FPS)
    frames: list[np.ndarray] = []
    while True:
        more, frame = reader.read()
        if not more:
            return frames, speed
        frames.append(frame)


def differing(frames):
    """How many frames differ from the one before, below the caption."""
    pictures = [frame[CAPTION_HEIGHT:].astype(int) for frame in frames]
    return sum(np.abs(one - other).max() > 40 for one, other in itertools.pairwise(pictures))


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


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("out.avi", "--video 'out.avi': must be a file whose name ends in .mp4 or .gif"),
        (
            "run/latest.safetensors/out.mp4",
            "--video run/latest.safetensors/out.mp4: cannot be written "
            "(run/latest.safetensors is no directory)",
        ),
        ("folder.mp4", "--video folder.mp4: cannot be written (it is a directory)"),
    ],
)
def test_a_video_that_cannot_be_written_is_one_line(program, checkpoint, path, told):
    Path("folder.mp4").mkdir()
    before = Path(checkpoint).read_bytes()
    status, out, err = program("--test", "--restore", checkpoint, "--video", path)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert told in err
    assert Path(checkpoint).read_bytes() == before
    assert not [name for name in os.listdir() if "recording" in name]


def test_a_full_disk_is_one_line_and_leaves_the_older_video(program, checkpoint, monkeypatch):
    """A limit on the size of files stands for the disk."""
    limited = ["sh", "-c", 'ulimit -f 1; exec "$0" "$@"', *video._ffmpeg()]
    monkeypatch.setattr(video, "_ffmpeg", lambda: limited)
    Path("out.mp4").write_text("older")
    status, _, err = program("--test", "--restore", checkpoint, "--video", "out.mp4")
    assert status == 2
    assert err.startswith("error: --video out.mp4: cannot be written (ffmpeg: ")
    assert err.count("\n") == 1
    assert Path("out.mp4").read_text() == "older"
    assert not [name for name in os.listdir() if "recording" in name]


def test_ffmpegs_reason_is_told_without_the_part_that_gives_it():
    words = "x\n[out#0/mp4 @ 0x56057a3fe440] Error closing file: No space left on device\n"
    assert video._last_line(words) == "Error closing file: No space left on device"


def test_an_interrupt_while_a_gif_is_made_leaves_the_video(program, checkpoint, monkeypatch):
    def interrupted(*arguments):
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(video, "convert", interrupted)
    status, out, err = program("--test", "--restore", checkpoint, "--video", "out.gif")
    assert (status, err) == (130, "")
    assert "Recorded out.gif.mp4: " in out
    assert len(decoded("out.gif.mp4")[0]) > 2
    assert not Path("out.gif").exists()
    assert not [name for name in os.listdir() if "recording" in name]


@pytest.mark.parametrize("fault", ["raises", "changes", "empty"])
def test_pictures_that_go_wrong_are_one_line_and_no_video(program, checkpoint, monkeypatch, fault):
    pictures = iter([np.zeros((50, 60, 3), np.uint8)] * 3)
    wrong = {"raises": RuntimeError("no more"), "changes": np.zeros((51, 60, 3), np.uint8),
             "empty": np.zeros((0, 60, 3), np.uint8)}[fault]  # fmt: skip

    def render(env):
        picture = next(pictures, wrong)
        if isinstance(picture, Exception):
            raise picture
        return picture

    monkeypatch.setattr("gymnasium.envs.classic_control.cartpole.CartPoleEnv.render", render)
    status, out, err = program("--test", "--restore", checkpoint, "--video", "out.mp4")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("error: --video: the environment cannot be shown (")
    assert [name for name in os.listdir() if "out" in name] == []


def test_what_cannot_be_played_in_a_directory_is_told_and_left_out(program, checkpoint):
    Path("run/update-2.safetensors").write_text("foreign")
    status, out, err = program("--test", "--restore", "run", "--video", "v/out.mp4")
    assert status == 2
    assert err.startswith("error: --restore run/update-2.safetensors: ")
    assert err.count("\n") == 1
    assert len(os.listdir("v")) == len(rewards(out)) == 4


def test_an_interrupt_before_the_first_episode_has_ended_keeps_the_name(program, checkpoint):
    """There is no return yet to be named after."""

    def interrupted(env, actor, seed, cap):
        env.reset(seed=seed)
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("es.test.rollout", interrupted)
        status, _, err = program("--test", "--restore", "run", "--video", "v/out.mp4")
    assert (status, err) == (130, "")
    assert os.listdir("v") == ["out-update-1.mp4"]


def test_an_interrupted_video_holds_what_was_played(start, program):
    """The environment is slow, and its pictures have something to show."""
    program("--env-name", "Pendulum-v1", "--n", 2, "--workers", 0, "--max-gradient-updates", 1)
    restored = ("--restore", "checkpoints/Pendulum-v1/latest.safetensors")
    process = start("--test", *restored, "--video", "out.mp4", "--episodes", 1000)
    assert process.stdout is not None
    next(line for line in process.stdout if line.startswith("Episode"))
    children = descendants(process.pid)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "")
    assert len(decoded("out.mp4")[0]) >= 201
    assert "Recorded out.mp4" in out
    assert children
    assert not [pid for pid in children if Path(f"/proc/{pid}").exists()]
