"""Watching a checkpoint."""

import json
import os
import re
import shlex

import numpy as np
import pytest

from es.algorithm.noise import Stream, derive_seeds
from tests.conftest import SEED


@pytest.fixture
def run(program):
    program.train("--max-gradient-updates", 3, "--run-dir", "run")
    return "run/latest.safetensors"


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
    silent = program("--test", "--no-render", "--restore", run, "--silent")
    assert silent == (0, out.splitlines()[-1] + "\n", "")


def test_an_environment_that_goes_wrong_is_named_with_its_own_traceback(program):
    game = ("--env-name", "tests.faulty:Faulty-v0", "--n", 2, "--workers", 0)
    assert program(*game, "--max-gradient-updates", 1, "--run-dir", "run")[0] == 0
    faulty = ("--env-kwargs", "fault=raise", "share=1.0")
    play = (*game[:2], "--test", "--no-render", "--restore", "run/latest.safetensors")
    status, _, err = program(*play, *faulty)
    assert status == 1
    assert err.startswith("error: --env-name tests.faulty:Faulty-v0: the episode of seed ")
    assert err.splitlines()[-1] == "ValueError: unlucky"


def test_the_seed_chooses_the_episodes(program, run):
    play = ("--test", "--no-render", "--restore", run)
    first = program(*play, "--seed", 5)[1]
    assert program(*play, "--seed", 5)[1] == first
    assert program(*play, "--seed", 6)[1] != first


def test_the_episode_cap_and_the_environments_own_limit_hold(program, run):
    _, out, _ = program("--test", "--no-render", "--restore", run, "--max-episode-length", 4)
    assert rewards(out) == [4.0] * 10
    game = ("--small-net", "--env-name", "MountainCar-v0", "--run-dir", "car")
    program(*game, "--n", 2, "--max-gradient-updates", 1, "--workers", 0)
    assert rewards(program("--test", "--no-render", "--restore", "car")[1])[-1] == -200.0


def test_the_run_is_not_touched(program, run):
    before = sorted((path.name, path.stat().st_mtime_ns) for path in os.scandir("run"))
    program("--test", "--no-render", "--episodes", 1, "--restore", run)
    assert sorted((path.name, path.stat().st_mtime_ns) for path in os.scandir("run")) == before


@pytest.mark.parametrize(
    ("display", "flags"), [(":0", "--test --restore"), ("", "--test --video policy.mp4 --restore")]
)
def test_a_run_tells_how_it_can_be_watched_here(program, monkeypatch, display, flags):
    monkeypatch.setattr("sys.platform", "linux")
    for variable in ("WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("DISPLAY", display)
    *_, line, command, _ = program.train("--max-gradient-updates", 1).splitlines()
    assert line == "Watch it:"
    assert command.endswith(f" {flags} checkpoints/CartPole-v1/latest.safetensors")


def test_a_run_in_an_environment_without_pictures_tells_how_it_is_played_unseen(program):
    few = ("--n", 2, "--workers", 0, "--max-gradient-updates", 1)
    _, out, _ = program("--env-name", "tests.strange:Digits-v0", *few)
    *_, line, command, _ = out.splitlines()
    assert line == "Play it (its environment has no render mode rgb_array):"
    words = shlex.split(command)
    assert program(*words[words.index("--test") :])[::2] == (0, "")


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
    test = ("--test", "--restore", "run/latest.safetensors", *game)
    for flags in ((), ("--video", "episode.mp4")):
        status, out, err = program(*test, *flags)
        assert (status, out) == (2, "")
        assert "cannot be made with render_mode=rgb_array (TypeError" in err
        assert "give --no-render and no --video" in err
        assert err.count("\n") == 1
    assert program(*test, "--no-render", "--episodes", 1)[0] == 0


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
    status, out, err = program("--test", "--restore", "run/latest.safetensors")
    assert (status, err) == (0, "")
    assert len(frames) == 15
    assert len(set(frames)) > 3
    assert min(sizes[0]) >= 400
    assert rewards(out) == rewards(out)[:2]  # two whole episodes of 6 frames; the third was cut
    assert out.splitlines()[-1].startswith("2 episodes: mean")


def test_json_is_one_line_of_what_is_printed_else(program, run):
    play = ("--test", "--restore", run, "--episodes", 3)
    status, out, err = program(*play, "--json")
    assert (status, err, out.count("\n")) == (0, "", 1)
    found = json.loads(out)
    returns = rewards(program(*play, "--no-render")[1])
    assert found == {
        "checkpoint": run, "env_name": "CartPole-v1", "update": 3, "seed": SEED,
        "stochastic_start": 0, "episodes": 3, "mean": np.mean(returns), "std": np.std(returns),
        "min": min(returns), "max": max(returns), "returns": returns, "lengths": returns,
        "seeds": derive_seeds(SEED, 3, Stream.EVALUATION, 3),
    }  # fmt: skip


def test_returns_that_are_no_numbers_are_null_in_json(program):
    """JSON has no word for them."""
    game = ("--env-name", "tests.faulty:Faulty-v0", "--env-kwargs", "fault=nan", "--seed", 1)
    program(*game, "--n", 8, "--workers", 0, "--max-gradient-updates", 1, "--run-dir", "run")
    play = ("--test", "--restore", "run/latest.safetensors", "--json", "--episodes", 20, *game[:2])
    found = json.loads(program(*play)[1], parse_constant=lambda word: pytest.fail(word))
    assert None in found["returns"]
    assert found["mean"] is None


def test_a_directory_is_played_snapshot_by_snapshot(program):
    program.train("--max-gradient-updates", 11, "--save-every", 1, "--run-dir", "run")
    play = ("--test", "--restore", "run", "--episodes", 1)
    lines = [json.loads(line) for line in program(*play, "--json")[1].splitlines()]
    assert [line["update"] for line in lines][:11] == list(range(1, 12))
    last = ["run/best.safetensors", "run/latest.safetensors"]
    assert [line["checkpoint"] for line in lines][11:] == last
    out = program(*play, "--no-render")[1]
    assert "run/update-10.safetensors, update 10:" in out
    assert rewards(out) == [line["mean"] for line in lines]


def test_checkpoints_of_a_directory_that_fail_are_told_and_skipped(program):
    game = ("--env-name", "tests.faulty:Faulty-v0", "--n", 2, "--workers", 0, "--save-every", 1)
    program(*game, "--max-gradient-updates", 2, "--run-dir", "run")
    faulty = ("--env-kwargs", "fault=raise", "share=1.0", "--episodes", 1)
    play = (*game[:2], "--test", "--no-render", "--restore", "run", *faulty)
    status, _, err = program(*play)
    assert (status, err.count("error: --env-name tests.faulty:Faulty-v0: the episode")) == (1, 4)


def test_a_stochastic_start_plays_other_episodes_the_same_each_time(program, run):
    play = ("--test", "--json", "--restore", run)
    plain = json.loads(program(*play)[1])
    first, again = (program(*play, "--stochastic-start", 8)[1] for _ in range(2))
    assert first == again
    assert json.loads(first)["stochastic_start"] == 8
    assert json.loads(first)["returns"] != plain["returns"]
