"""What MuJoCo draws, and with what."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from es.envs import describe_env, make_env
from es.errors import UsageError
from es.rendering import mujoco
from es.rendering.show_frames import make_drawn
from es.rendering.video import CAPTION_HEIGHT
from tests.rendering.videos import decoded


def test_mujoco_is_drawn_without_a_display(program, monkeypatch):
    for variable in ("DISPLAY", "MUJOCO_GL"):
        monkeypatch.delenv(variable, raising=False)
    game = ("--env-name", "InvertedPendulum-v5", "--n", 2, "--workers", 0, "--run-dir", "run")
    program(*game, "--max-gradient-updates", 1, "--seed", 1)
    record = ("--restore", "run/latest.safetensors", "--video", "out.mp4")
    status, out, err = program("--test", *record)
    if "nothing to draw with" in err:
        pytest.skip("MuJoCo needs EGL or OSMesa (apt-get install libegl1 libgl1-mesa-dri)")
    assert (status, err) == (0, "")
    frames, speed = decoded("out.mp4")
    assert speed == 25
    assert len(frames) == int(out.split(" steps")[0].rpartition(" ")[2]) + 1
    assert np.std(frames[0][CAPTION_HEIGHT:]) > 10  # not black
    assert not Path("MUJOCO_LOG.TXT").exists()


@pytest.mark.parametrize(
    ("chosen", "stays"),
    [
        ([], True),
        (["camera_name=track"], True),
        (["default_camera_config={'distance': 4.0}"], False),
    ],
)
def test_a_mujoco_body_stays_in_the_picture_unless_a_camera_is_chosen(chosen, stays):
    """40 m are 30 times what the floor's pattern takes to come again."""
    described = describe_env("HalfCheetah-v5", ["width=120", "height=120", *chosen])
    try:
        env = make_drawn(partial(make_env, described, "rgb_array"), described["kwargs"], "")
    except UsageError as error:
        pytest.skip(str(error))
    plain = make_env(described, "rgb_array")

    def differing_from(other):
        return np.mean(np.abs(np.asarray(env.render(), int) - other) > 20)

    env.reset(seed=1)
    plain.reset(seed=1)
    assert differing_from(plain.render()) < 0.2
    for action in np.random.default_rng(1).uniform(-1, 1, (20, 6)).astype(np.float32):
        assert env.step(action)[1] == plain.step(action)[1]
    body: Any = env.unwrapped
    body.set_state(body.data.qpos, body.data.qvel)  # a picture lags behind a little
    near = env.render()
    body.set_state(body.data.qpos + np.eye(9)[0] * 40, body.data.qvel)
    assert (differing_from(near) < 0.003) == stays
    body.set_state(body.data.qpos + np.eye(9)[1] * 9, body.data.qvel)  # out of the picture
    assert differing_from(near) > 0.02
    env.close()
    plain.close()


def test_mujoco_without_graphics_is_one_line(program, monkeypatch):
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    monkeypatch.setattr(mujoco, "BACKENDS", ("nonsense",))
    game = ("--env-name", "InvertedPendulum-v5", "--n", 2, "--workers", 0, "--run-dir", "run")
    program(*game, "--max-gradient-updates", 1, "--seed", 1)
    status, _, err = program("--test", "--restore", "run/latest.safetensors", "--video", "out.mp4")
    assert status == 2
    assert err.count("\n") == 1
    assert "install EGL or OSMesa" in err
    assert not Path("out.mp4").exists()
