"""Watching a checkpoint."""

import os
import re

import numpy as np
import pytest

from envs import describe_env, make_env
from render.watched import frames_per_second
from tests.conftest import read


@pytest.fixture
def run(program):
    program.train("--max-gradient-updates", 3, "--run-dir", "run")
    return "run/latest.pth"


def rewards(out):
    return [float(value) for value in re.findall(r"Episode \d+: reward (-?[\d.]+)", out)]


def test_ten_episodes_and_a_summary(program, run):
    status, out, err = program("--test", "--no-render", "--restore", run)
    assert (status, err) == (0, "")
    found = rewards(out)
    assert len(found) == 10
    assert out.splitlines()[-1] == (
        f"10 episodes: mean {np.mean(found):.2f}, standard deviation {np.std(found):.2f}, "
        f"min {min(found):.2f}, max {max(found):.2f}"
    )


def test_the_seed_chooses_the_episodes(program, run):
    play = ("--test", "--no-render", "--restore", run)
    first = program(*play, "--seed", 5)[1]
    assert program(*play, "--seed", 5)[1] == first
    assert program(*play, "--seed", 6)[1] != first


def test_the_episode_cap_holds(program, run):
    _, out, _ = program("--test", "--no-render", "--restore", run, "--max-episode-length", 4)
    assert rewards(out) == [4.0] * 10


def test_the_environments_own_limit_holds(program):
    """MountainCar is cut off after 200 steps, each of which costs 1."""
    game = ("--small-net", "--env-name", "MountainCar-v0", "--seed", 1, "--run-dir", "car")
    program(*game, "--n", 2, "--max-gradient-updates", 1, "--workers", 0)
    _, out, _ = program("--test", "--no-render", "--episodes", 2, "--restore", "car/latest.pth")
    assert rewards(out) == [-200.0] * 2


def test_the_run_is_not_touched(program, run):
    before = sorted((path.name, path.stat().st_mtime_ns) for path in os.scandir("run"))
    program("--test", "--no-render", "--episodes", 1, "--restore", run)
    assert sorted((path.name, path.stat().st_mtime_ns) for path in os.scandir("run")) == before
    assert read(run).counters.update == 3


def test_without_a_display_the_remedy_is_named(program, run, monkeypatch):
    for variable in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(variable, raising=False)
    status, out, err = program("--test", "--restore", run)
    assert (status, out) == (2, "")
    assert "--no-render" in err
    assert err.count("\n") == 1


def test_an_environment_that_has_no_pictures_is_one_line(program, monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    game = ("--env-name", "tests.strange:Digits-v0")
    program(*game, "--n", 2, "--workers", 0, "--max-gradient-updates", 1, "--run-dir", "run")
    status, out, err = program("--test", "--restore", "run/latest.pth", *game)
    assert (status, out) == (2, "")
    assert "--no-render" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("env", ["CartPole-v1", "PongDeterministic-v4"])
def test_every_frame_is_shown_until_the_window_closes(program, monkeypatch, env):
    """With SDL's dummy driver, which draws into memory."""
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    import pygame

    program(
        "--env-name", env, "--n", 2, "--seed", 1, "--workers", 0, "--max-gradient-updates", 1,
        "--max-episode-length", 5, "--run-dir", "run",
    )  # fmt: skip
    frames, sizes = [], []

    def flip():
        screen = pygame.display.get_surface()
        assert screen is not None
        sizes.append(screen.get_size())
        frames.append(pygame.surfarray.array3d(screen).tobytes())
        if len(frames) == 15:
            pygame.event.post(pygame.event.Event(pygame.QUIT))

    monkeypatch.setattr(pygame.display, "flip", flip)
    status, out, err = program("--test", "--restore", "run/latest.pth")
    assert (status, err) == (0, "")
    assert len(frames) == 15
    assert len(set(frames)) > 3
    assert min(sizes[0]) >= 400
    assert rewards(out) == rewards(out)[:2]  # two whole episodes of 6 frames; the third was cut
    assert out.splitlines()[-1].startswith("2 episodes: mean")


@pytest.mark.parametrize(
    ("env", "skip", "speed"),
    [("Pendulum-v1", 1, 30), ("Pendulum-v1", 3, 10), ("PongDeterministic-v4", 3, 20)],
)
def test_frames_are_shown_at_the_environments_speed(env, skip, speed):
    description = describe_env(env, frame_skip=skip)
    shown = make_env(description, "rgb_array")
    assert frames_per_second(shown, description["frame_skip"]) == speed
    shown.close()
