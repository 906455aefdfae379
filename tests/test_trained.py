"""The policies in trained/: complete, small, and as good as trained/README.md says."""

import json

import numpy as np
import pytest

from benchmarks.scores import TRAINED, documented_scores
from tests.checkpoints import read, same
from tests.processes import ROOT

NAMES = {path.stem for path in (ROOT / "configs").glob("*.toml")} - {"unknown"}
QUICK = ("Acrobot-v1", "CartPole-v1", "CyclicMDP-v0", "MountainCar-v0", "Pendulum-v1", "Reacher-v5")
EPISODES = 10


def test_every_task_has_a_policy_with_its_line():
    assert {path.stem for path in TRAINED.glob("*.safetensors")} == NAMES
    assert set(documented_scores()) == NAMES
    assert max(path.stat().st_size for path in TRAINED.iterdir()) <= 2_500_000


@pytest.mark.parametrize("name", QUICK)
def test_a_quick_one_scores_what_its_line_says(program, name):
    status, out, err = program(
        "--test", "--json", "--episodes", EPISODES, "--seed", 1000,
        "--restore", TRAINED / f"{name}.safetensors",
    )  # fmt: skip
    assert (status, err) == (0, "")
    line, returns = documented_scores()[name], json.loads(out)["returns"]
    # The first of the 100 episodes of the line: three standard errors of a mean of so few.
    assert abs(np.mean(returns) - line.mean) <= 3 * line.std / EPISODES**0.5 + 0.01


def test_pong_wins_through_its_wrappers(program):
    checkpoint = TRAINED / "PongDeterministic-v4.safetensors"
    status, out, err = program("--test", "--json", "--episodes", 1, "--restore", checkpoint)
    assert (status, err) == (0, "")
    assert json.loads(out)["mean"] >= documented_scores()["PongDeterministic-v4"].mean


def test_training_goes_on_from_a_policy(program):
    checkpoint = TRAINED / "Acrobot-v1.safetensors"
    before = read(checkpoint)
    update = before.counters.update + 1
    status, out, err = program(
        "--restore", checkpoint, "--workers", 0, "--max-gradient-updates", update, "--override"
    )
    assert (status, err) == (0, "")
    assert out.splitlines()[-1].startswith(f"Finished: {update} updates")
    after = read("checkpoints/Acrobot-v1/latest.safetensors")
    assert not same(after.parameters, before.parameters)
