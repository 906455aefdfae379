"""Pictures of episodes: what is drawn, recorded and refused."""

import itertools
import os
import signal
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import cv2
import numpy as np
import pytest
from PIL.GifImagePlugin import GifImageFile

from es.envs import describe_env, make_env
from es.errors import UsageError
from es.reports import video
from es.reports.video import CAPTION_HEIGHT, Recorder, ShowFrames, draw, make_drawn
from tests.checkpoints import RUN, read
from tests.processes import descendants
from tests.test_test import rewards


def decoded(path):
    """The frames of a video, (height, width, 3), and how many are to be shown in a second."""
    reader = cv2.VideoCapture(str(path))
    speed = reader.get(cv2.CAP_PROP_FPS)
    frames: list[np.ndarray] = []
    while (more := reader.read())[0]:
        frames.append(more[1])
    return frames, speed


@pytest.fixture
def checkpoint(program):
    """A policy that keeps the pole up for a while."""
    program.train("--max-gradient-updates", 3, "--run-dir", "run", "--save-every", 1)
    return "run/latest.safetensors"


def no_recording_is_left():
    return not [name for name in os.listdir() if "recording" in name]


def test_every_step_is_a_frame_at_the_environments_speed(program, checkpoint):
    watch = ("--test", "--restore", checkpoint, "--episodes", 2)
    status, out, err = program(*watch, "--video", "new/out.mp4")
    assert (status, err) == (0, "")
    assert rewards(program(*watch, "--no-render")[1]) == rewards(out)
    steps = [int(line.split()[-2]) for line in out.splitlines() if line.startswith("Episode")]
    frames, speed = decoded("new/out.mp4")
    assert (len(frames), speed) == (sum(steps) + 2, 50)
    assert frames[0].shape == (400 + CAPTION_HEIGHT, 600, 3)
    pictures = [frame[CAPTION_HEIGHT:].astype(int) for frame in frames]
    moved = [np.abs(one - other).max() > 40 for one, other in itertools.pairwise(pictures)]
    assert sum(moved) > 0.8 * len(frames)
    captions = {frame[:CAPTION_HEIGHT].tobytes() for frame in frames}
    assert len(captions) > max(steps) / 2  # the return counts up
    words = f"Recorded new/out.mp4: {len(frames)} frames, {len(frames) / 50:.1f} s"
    assert out.splitlines()[-1] == words
    assert os.listdir("new") == ["out.mp4"]


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
        assert gif.info["duration"] == pytest.approx(1000 / 15, abs=10)


def test_a_directory_makes_a_video_of_each_checkpoint(program, checkpoint):
    status, out, err = program("--test", "--restore", "run", "--video", "v/out.mp4")
    assert (status, err) == (0, "")
    checkpoints = ("update-1", "update-2", "update-3", "best", "latest")
    names = zip(checkpoints, rewards(out), strict=True)
    expected = [f"out-{name}-return-{reward:.2f}.mp4" for name, reward in names]
    assert sorted(os.listdir("v")) == sorted(expected)


def test_an_environment_may_pay_arrays_and_have_any_attributes(program):
    crowded = ("--env-name", "tests.strange:Crowded-v0", "--small-net", "--workers", 0)
    options = (*crowded, "--n", 4, "--max-gradient-updates", 1, "--run-dir", "run")
    assert program(*options)[0] == 0
    watched = ("--test", "--restore", "run", *crowded[:2], "--video", "out.mp4", "--episodes", 1)
    status, out, err = program(*watched)
    assert (status, err) == (0, "")
    assert float(rewards(out)[0]) >= 4


def test_a_viewer_is_told_the_episode_and_its_return_so_far():
    viewer = Mock()
    env = ShowFrames(make_env(describe_env("CartPole-v1"), "rgb_array"), viewer, "--video")
    for _ in range(2):
        env.reset(seed=1)
        env.step(0)
    env.close()
    captions = [call.args[1] for call in viewer.show.call_args_list]
    assert captions == [
        f"episode {episode}   return {reward}.00" for episode in (1, 2) for reward in (0, 1)
    ]
    assert viewer.close.call_count == 1


def test_pictures_are_bytes_without_transparency():
    env = Mock()
    env.render.return_value = np.full((4, 5, 4), 204)
    pixels = draw(env, "", "")
    assert pixels.dtype == np.uint8
    assert (pixels.shape, pixels.max()) == ((4, 5, 3), 204)
    for wrong in (None, np.zeros((4, 4)), np.zeros((0, 4, 3))):
        env.render.return_value = wrong
        with pytest.raises(UsageError, match="not a picture"):
            draw(env, "", "")


@pytest.mark.parametrize(
    ("path", "reason"),
    [("run/latest.safetensors/out.mp4", ""), ("folder.mp4", "it is a directory)")],
)
def test_a_video_that_cannot_be_written_is_one_line(program, checkpoint, path, reason):
    Path("folder.mp4").mkdir()
    status, out, err = program("--test", "--restore", checkpoint, "--video", path)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert f"--video {path}: cannot be written ({reason}" in err
    assert no_recording_is_left()


def test_a_full_disk_is_one_line_and_leaves_the_older_video(program, checkpoint, monkeypatch):
    """A limit on the size of files stands for the disk."""
    popen = subprocess.Popen

    def limited(command, **options):
        return popen(["sh", "-c", 'ulimit -f 1; exec "$0" "$@"', *command], **options)

    monkeypatch.setattr("subprocess.Popen", limited)
    Path("out.mp4").write_text("older")
    status, _, err = program("--test", "--restore", checkpoint, "--video", "out.mp4")
    assert (status, err.count("\n")) == (2, 1)
    assert err.startswith("error: --video out.mp4: cannot be written (ffmpeg: ")
    assert Path("out.mp4").read_text() == "older"
    assert no_recording_is_left()


def test_an_interrupted_video_holds_what_was_played(start, program):
    """The environment is slow, and its pictures have something to show."""
    program("--env-name", "Pendulum-v1", "--n", 2, "--workers", 0, "--max-gradient-updates", 1)
    restored = ("--restore", "checkpoints/Pendulum-v1/latest.safetensors")
    process = start("--test", *restored, "--video", "out.gif", "--episodes", 1000)
    next(line for line in process.stdout if line.startswith("Episode"))
    children = descendants(process.pid)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "")
    assert "Recorded out.gif" in out
    with GifImageFile("out.gif") as gif:
        assert gif.n_frames >= 201 * 20 / 30
    assert children
    assert not [pid for pid in children if Path(f"/proc/{pid}").exists()]


def test_a_mujoco_body_stays_in_the_picture_on_an_endless_floor():
    """Also 100 m away, where the model's own floor has ended."""
    try:
        env = make_drawn(describe_env("HalfCheetah-v5", ["width=120"]), "")
    except UsageError as error:
        pytest.skip(str(error))
    pictures = []
    with closing(env):
        env.reset(seed=1)
        body: Any = env.unwrapped
        for distance in (0, 100):
            body.set_state(body.data.qpos + np.eye(9)[0] * distance, body.data.qvel)
            pictures.append(draw(env, "", "").astype(int))
    for picture in pictures:
        assert np.std(picture[-20:]) > 10  # a chequered floor
        orange = picture[..., 0] - picture[..., 2] > 40
        assert orange.mean() > 0.01


def test_the_robot_inside_a_maze_is_prepared():
    pytest.importorskip("gymnasium_robotics")
    maze = describe_env("gymnasium_robotics:PointMaze_UMazeDense-v3")
    try:
        env = make_drawn(maze, "")
    except UsageError as error:
        pytest.skip(str(error))
    with closing(env):
        assert env.get_wrapper_attr("point_env").model.geom("ground").size[0] > 1000


def test_mujoco_without_graphics_is_one_line(monkeypatch):
    environment = describe_env("InvertedPendulum-v5")  # imports mujoco
    monkeypatch.setenv("MUJOCO_GL", "nonsense")
    with pytest.raises(
        UsageError, match=r"MuJoCo cannot draw with MUJOCO_GL=nonsense .* set MUJOCO_GL to"
    ):
        video.require_drawable(environment)


def test_videos_are_made_in_training_the_last_one_always(program):
    arguments = ("--video-every", 2, "--max-gradient-updates", 5)
    out = program.train(*arguments)
    assert "Recording the last video" in out
    found = {path.name for path in (RUN / "videos").iterdir()}
    assert "update-4.mp4" in found <= {"update-2.mp4", "update-4.mp4"}
    assert len(decoded(RUN / "videos/update-4.mp4")[0]) > 2


class Recording:
    """Stands for the process that records, until a test ends it."""

    started: list["Recording"]

    def __init__(self, *words):
        self.words, self.over, self.ended, self.failed = words, False, False, ""
        Recording.started.append(self)

    def poll(self):
        return 0 if self.over else None

    def end(self):
        self.over = self.ended = True
        return self.failed


@pytest.fixture
def recorder(program, monkeypatch):
    """A recorder without processes, with a function that gives it the state after an update."""
    program.train("--max-gradient-updates", 1)
    checkpoint = read(RUN / "latest.safetensors")
    Recording.started = []
    monkeypatch.setattr(video, "Helper", Recording)
    told: list[str] = []
    made = Recorder(RUN, ["--trust"], told.append, told.append)

    def record(update):
        counters = checkpoint.counters._replace(update=update)
        made.record(checkpoint._replace(counters=counters))

    return made, record, told


def recorded():
    return [Path(each.words[-2]).stem for each in Recording.started]


def test_one_video_is_recorded_at_a_time_and_the_last_one_at_the_end(recorder, monkeypatch):
    made, record, told = recorder
    for update in (1, 2, 3):
        record(update)
    Recording.started[0].over = True
    for update in (4, 5):
        record(update)
    assert recorded() == ["update-1", "update-4"]
    assert Recording.started[0].words[-1] == "--trust"
    monkeypatch.setattr("time.sleep", lambda _: Recording.started[-1].end())
    made.close(lambda: False)
    assert recorded() == ["update-1", "update-4", "update-5"]
    assert not list((RUN / "videos").glob(".*"))
    assert len(told) == 1


def test_an_interrupt_leaves_the_last_video_out(recorder):
    made, record, told = recorder
    for update in (1, 2):
        record(update)
    Recording.started[0].over = True
    made.close(lambda: True)
    assert Recording.started[0].ended
    assert (recorded(), told) == (["update-1"], [])


def test_what_could_not_be_recorded_is_told_once(recorder):
    made, record, told = recorder
    for update in (1, 2, 3):
        record(update)
        Recording.started[-1].over, Recording.started[-1].failed = True, "no ffmpeg"
    made.close(lambda: False)
    (warning,) = [line for line in told if "Ctrl-C" not in line]
    folder = (RUN / "videos").resolve()
    assert warning == f"{folder}: an episode could not be recorded (no ffmpeg)"


def test_what_has_no_pictures_cannot_be_recorded(program):
    game = ("--env-name", "tests.strange:Digits-v0", "--n", 2, "--workers", 0)
    status, _, err = program(*game, "--video-every", 2)
    assert (status, err.count("\n")) == (2, 1)
    assert "remove --video-every" in err
    assert not Path("checkpoints").exists()


def test_pictures_that_go_wrong_are_one_line_and_no_video(program, checkpoint, monkeypatch):
    pictures = iter([np.zeros((50, 60, 3), np.uint8)] * 3)

    def render(env):
        if (picture := next(pictures, None)) is None:
            raise RuntimeError("no more")
        return picture

    monkeypatch.setattr("gymnasium.envs.classic_control.cartpole.CartPoleEnv.render", render)
    status, out, err = program("--test", "--restore", checkpoint, "--video", "out.mp4")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("error: --video: the environment cannot be drawn (RuntimeError: no more")
    assert [name for name in os.listdir() if "out" in name] == []
