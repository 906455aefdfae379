"""The examples, in their folder, as their first lines say."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import gymnasium
import pytest
import torch

from es.loading import load_policy
from tests.conftest import ROOT, read

EXAMPLES = ROOT / "examples"


@pytest.fixture(autouse=True)
def _among_the_examples(monkeypatch):
    for file in EXAMPLES.glob("*.py"):
        Path(file.name).write_text(file.read_text())
    monkeypatch.setattr("sys.path", [*sys.path])  # the program adds the folder


def flags(name: str) -> list[str]:
    """The flags of the command in the text that an example begins with."""
    text = (EXAMPLES / name).read_text().split('"""')[1]
    (paragraph,) = [part for part in text.split("\n\n") if "main.py" in part]
    return paragraph.partition("main.py")[2].split()


@pytest.mark.parametrize("name", ["memory.py", "vision.py"])
def test_it_is_short_and_its_command_trains(program, name):
    assert len((EXAMPLES / name).read_text().splitlines()) < 60
    quick = ("--n", 2, "--workers", 0, "--max-gradient-updates", 2, "--max-episode-length", 20)
    status, out, err = program(*flags(name), *quick, "--run-dir", "run", "--target-return", "None")
    assert (status, err) == (0, "")
    assert "Finished: 2 updates" in out
    assert read("run/latest.safetensors").network["kind"] == "own"


def test_the_policy_with_a_memory_balances_the_pole_without_velocities(program):
    command = flags("memory.py")
    options = dict(zip(command[::2], command[1::2], strict=False))
    path = EXAMPLES / "memory.safetensors"
    given = [word for name in ("--env-name", "--net") for word in (name, options[name])]
    status, out, err = program(
        "--test", "--restore", path, "--no-render", "--episodes", 5, "--json", *given
    )
    assert (status, err) == (0, "")
    assert json.loads(out)["mean"] >= 475
    quick = ("--eval-episodes", 1, "--max-episode-length", 10)
    assert program("--export", "policy.pt2", "--restore", path, *given, *quick)[0] == 0
    policy = load_policy(path, env_name=options["--env-name"], net=options["--net"])
    exported: Any = torch.export.load("policy.pt2").module()
    env, state = gymnasium.make(options["--env-name"]), torch.zeros(8)
    observation, _ = env.reset(seed=1)
    policy.reset()
    for _ in range(200):
        action, state = exported(torch.from_numpy(observation), state)
        assert int(action) == policy(observation)
        observation = env.step(int(action))[0]


def test_the_network_of_the_docs_trains_and_is_loaded_by_plain_torch(program):
    blocks = re.findall(
        r"```(?:python)?\n(.*?)```", (ROOT / "docs/networks.md").read_text(), re.DOTALL
    )
    module, commands, loads = blocks
    Path("my_networks.py").write_text(module)
    train, *_ = [line.partition("main.py ")[2].split() for line in commands.splitlines()]
    assert program(*train, "--workers", 0, "--n", 2, "--max-gradient-updates", 1)[0] == 0
    named: dict[str, Any] = {}
    exec(loads, named)
    saved = read("checkpoints/CartPole-v1/best.safetensors").parameters
    assert all(torch.equal(saved[name], named["module"].state_dict()[name]) for name in saved)
