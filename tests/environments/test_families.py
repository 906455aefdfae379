"""Whole runs on every family of environments, without stray files or words."""

import re
from pathlib import Path

import pytest

ENVIRONMENTS = [
    "Acrobot-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1",
    "LunarLander-v3", "LunarLander-v3 --env-kwargs continuous=True", "BipedalWalker-v3",
    "CarRacing-v3", "CarRacing-v3 --env-kwargs continuous=False",
    "HalfCheetah-v5", "Hopper-v5", "Walker2d-v5", "Ant-v5", "Humanoid-v5", "HumanoidStandup-v5",
    "Swimmer-v5", "Reacher-v5", "Pusher-v5", "InvertedPendulum-v5", "InvertedDoublePendulum-v5",
    "FrozenLake-v1", "FrozenLake-v1 --env-kwargs map_name=8x8", "Taxi-v4", "CliffWalking-v1",
    "Blackjack-v1", "CyclicMDP-v0",
    "BreakoutDeterministic-v4", "ALE/Freeway-v5", "ALE/Pong-v5 --env-kwargs obs_type=ram",
    "tests.strange:MultiDiscrete-v0", "tests.strange:MultiBinary-v0", "tests.strange:Start-v0",
    "tests.strange:Matrix-v0", "tests.strange:Matrix-v0 --action-bins 4 --action-noise 1",
    "tests.strange:Doubles-v0 --action-noise 9", "tests.strange:Parts-v0",
    "tests.strange:Digits-v0", "tests.strange:ChannelsFirst-v0", "tests.strange:Picture-v0",
    "tests.strange:Whole-v0", "tests.strange:Whole-v0 --action-bins 3 --action-noise 5",
    "tests.strange:Mission-v0",
]  # fmt: skip


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_it_trains_and_is_watched(program, environment):
    name = environment.split()
    run = ("--n", 2, "--max-episode-length", 6, "--run-dir", "run", "--workers", 0)
    status, _, err = program(*run, "--max-gradient-updates", 1, "--env-name", *name)
    assert (status, err) == (0, "")
    status, out, err = program(
        "--test", "--no-render", "--episodes", 1, "--restore", "run/latest.safetensors", *(
            ("--env-name", name[0]) if ":" in name[0] else ()
        )
    )  # fmt: skip
    assert (status, err) == (0, "")
    assert re.match(r"Episode 1: reward -?[\d.]+, \d steps\n", out)
    assert [path.name for path in Path().iterdir()] == ["run"]


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ("tests.strange:Unbounded-v0", "its actions are Box"),
        ("tests.strange:Words-v0", "its observations are Text"),
        ("CyclicMDP-v0 --env-kwargs states=3 rewards=[1]", "rewards has 1 numbers for 3 states"),
        ("CyclicMDP-v0 --env-kwargs states", "--env-kwargs states"),
    ],
)
def test_what_cannot_be_played_is_one_line(program, environment, words):
    status, out, err = program("--max-gradient-updates", 1, "--env-name", *environment.split())
    assert (status, out) == (2, "")
    assert words in err
    assert err.count("\n") == 1
    assert not any(Path().iterdir())


@pytest.mark.parametrize("name", ["HalfCheetah-v5", "LunarLander-v3"])
def test_simulators_keep_to_themselves(start, name):
    """In a process of its own, as a user starts it, since some speak only once."""
    process = start(
        "--env-name", name, "--n", 2, "--max-episode-length", 3, "--workers", 1,
        "--max-gradient-updates", 1, "--silent", "--run-dir", "run",
    )  # fmt: skip
    out, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (0, "")
    assert out.startswith("Finished: 1 update, ")
    assert out.count("\n") == 1
    assert {path.name for path in Path().iterdir()} == {"run", "tests"}  # as `start` left it
