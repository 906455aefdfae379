"""Videos that cannot be recorded, or not to their end."""

import os
import signal
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import gymnasium
import numpy as np
import pytest

from es.envs import describe_env, make_env
from es.errors import UsageError
from es.rendering import video
from es.rendering.show_frames import ShowFrames, make_drawn
from tests.processes import descendants
from tests.rendering.videos import decoded


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("out.avi", "--video 'out.avi' must be a file whose name ends in .mp4 or .gif"),
        (
            "run/latest.safetensors/out.mp4",
            "--video run/latest.safetensors/out.mp4: cannot be written "
            "(run/latest.safetensors: not a directory)",
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


class Undrawn(gymnasium.Env):
    """Has one picture, and otherwise what a test wants. human: has no other render mode."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, render_mode=None, *, human=False, speed=30, picture=None):
        modes = ["human"] if human else ["rgb_array"]
        self.metadata = {"render_modes": modes, "render_fps": speed}
        assert render_mode is None or render_mode in modes
        self.render_mode, self.picture = render_mode, picture

    def reset(self, *, seed=None, options=None):
        return np.zeros(2), {}

    def render(self):
        return self.picture


def undrawn(**kwargs):
    def make(**others):
        return Undrawn(**kwargs, **others)

    return make


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (
            undrawn(human=True),
            "--env-name Undrawn-v0: cannot be made with render_mode=rgb_array (Ass",
        ),
        (
            lambda: Undrawn(),
            "--env-name Undrawn-v0: cannot be made with render_mode=rgb_array (Type",
        ),
        (undrawn(speed="fast"), "--env-name Undrawn-v0: its metadata's render_fps is 'fast'"),
        (
            undrawn(),
            "--video: the environment cannot be shown (ValueError: its render() returned a",
        ),
    ],
)
def test_an_environment_that_cannot_be_drawn_is_one_line_without_a_traceback(make, told):
    gymnasium.register("Undrawn-v0", make)
    described = describe_env("Undrawn-v0")
    with pytest.raises(UsageError) as refused:
        ShowFrames(
            make_drawn(partial(make_env, described, "rgb_array"), {}, "give --no-render"),
            Mock(),
            "--video",
        ).reset()
    del gymnasium.registry["Undrawn-v0"]
    assert str(refused.value).startswith(told)
    assert "\n" not in str(refused.value)
    assert "give --no-render" in str(refused.value)


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
