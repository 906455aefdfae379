"""Families of environments that no file of configs/ trains are played."""

import math
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from es.config import Config
from es.policy import make_policy
from tests.checkpoints import rows
from tests.processes import ROOT

ENVIRONMENTS: list[tuple[str, dict[str, Any]]] = [
    ("CarRacing-v3", {}),
    ("CarRacing-v3", {"env_kwargs": ("continuous=False",)}),
    ("FrozenLake-v1", {"env_kwargs": ("map_name=8x8",)}),
    ("Taxi-v4", {}),
    ("CliffWalking-v1", {}),
    ("Blackjack-v1", {}),
    ("ALE/Pong-v5", {"env_kwargs": ("obs_type=ram",)}),
    ("ALE/Pong-v5", {"env_kwargs": ("continuous=True",)}),
    ("tests.strange:MultiDiscrete-v0", {}),
    ("tests.strange:MultiBinary-v0", {}),
    ("tests.strange:Start-v0", {}),
    ("tests.strange:Matrix-v0", {"action_bins": 4}),
    ("tests.strange:Whole-v0", {"action_bins": 3}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "settings"), ENVIRONMENTS)
def test_an_episode_is_played(name, settings):
    config = Config(env_name=name, seed=1, eval_episodes=1, max_episode_length=6, **settings)
    mean, _ = make_policy(config, None).evaluate()
    assert math.isfinite(mean)


def test_a_simulator_keeps_to_itself(start):
    """In a process of its own, as a user starts it: pygame, for one, speaks when it is imported."""
    process = start(
        "--env-name", "LunarLander-v3", "--n", 2, "--max-episode-length", 3, "--workers", 1,
        "--max-gradient-updates", 1, "--silent", "--run-dir", "run",
    )  # fmt: skip
    out, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (0, "")
    assert out.startswith("Finished: 1 update, ")
    assert out.count("\n") == 1
    assert {path.name for path in Path().iterdir()} == {"run", "tests"}  # as `start` left it


# ---- packages, as the page about environments names them ----

PAGE = (ROOT / "docs" / "environments.md").read_text()
COMMANDS = [
    shlex.split(line)
    for line in re.findall(r"^python main.py (--env-name .*)$", PAGE, re.MULTILINE)
    if line.split()[1].startswith("mo_gymnasium")
]
assert COMMANDS


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[1])
def test_it_is_trained_as_the_page_says(program, command):
    pytest.importorskip("mo_gymnasium")
    quick = ("--n", 2, "--workers", 0, "--max-gradient-updates", 1, "--max-episode-length", 20)
    status, _, err = program(*command, *quick, "--run-dir", "run", "--target-return", "None")
    assert (status, err) == (0, "")
    assert len(rows(Path("run"))) == 1
