"""The examples and the page about Python, run as a reader runs them."""

import importlib
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from tests.checkpoints import read, settings
from tests.processes import ROOT

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
    return paragraph.partition("main.py")[2].replace("\\\n", "").split()


@pytest.mark.parametrize("name", ["memory.py", "vision.py"])
def test_its_command_trains(program, name):
    quick = ("--n", 2, "--workers", 0, "--max-gradient-updates", 2, "--max-episode-length", 20)
    status, out, err = program(*flags(name), *quick, "--run-dir", "run", "--target-return", "None")
    assert (status, err) == (0, "")
    assert "Finished: 2 updates" in out
    assert settings("run/latest.safetensors").net


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


def test_the_network_of_the_docs_trains_and_is_loaded_by_plain_torch(program):
    section = (ROOT / "docs/environments.md").read_text().partition("## A network of your own")[2]
    module, commands, loads = re.findall(r"```(?:python)?\n(.*?)```", section, re.DOTALL)
    Path("my_networks.py").write_text(module)
    train, *_ = [line.partition("main.py ")[2].split() for line in commands.splitlines()]
    assert program(*train, "--workers", 0, "--n", 2, "--max-gradient-updates", 1)[0] == 0
    named: dict[str, Any] = {}
    exec(loads, named)
    saved = read("checkpoints/gru/best.safetensors").parameters
    assert all(torch.equal(saved[name], named["module"].state_dict()[name]) for name in saved)


EXECUTE = """
import sys, nbclient, nbformat
from jupyter_client.manager import AsyncKernelManager
notebook = nbformat.read(sys.argv[1], as_version=4)
kernel = AsyncKernelManager(transport="ipc")  # no network
nbclient.NotebookClient(notebook, km=kernel, timeout=600).execute()
nbformat.write(notebook, "executed.ipynb")
"""


@pytest.mark.skipif(
    importlib.util.find_spec("nbclient") is None,
    reason="nbclient is not installed (pip install -r requirements-dev.txt)",
)
def test_the_notebook_runs_and_shows_progress(tmp_path):
    notebook = EXAMPLES / "quickstart.ipynb"
    assert not any(cell.get("outputs") for cell in json.loads(notebook.read_text())["cells"])
    run("-c", EXECUTE, notebook, IPYTHONDIR=str(tmp_path / "ipython"))
    cells = json.loads(Path("executed.ipynb").read_text())["cells"]
    views, said = [], []
    for cell in cells:
        if outputs := cell.get("outputs"):
            said.append("".join(text for each in outputs for text in each.get("text", ())))
            data = ["".join(each["data"]["text/plain"]) for each in outputs if "data" in each]
            views.append([re.sub(r"\x1b\[[\d;]*m", "", each) for each in data])
    train, plot, play, own, score = views
    assert re.match(r"update \d+  episodes \d+ .* unperturbed 500 ", train[0])
    assert "\nSolved: mean " in said[0]
    assert train[1] == "(True, PosixPath('checkpoints/CartPole-v1'))"
    assert plot == ["<Figure size 640x480 with 1 Axes>"]
    assert min(map(float, play[0].strip("[]").split(","))) > 400
    assert own[0].startswith("update ")
    means = [float(mean) for mean in re.findall(r"^update \d+: mean return (.*)", said[3], re.M)]
    assert means[-1] >= -6 > means[0]
    assert f"Finished: {10 * len(means)} updates" in said[3]
    assert float(score[0]) > -10
    assert not [*tmp_path.glob("checkpoints/*.2")]


def test_the_example_of_ask_and_tell_minimises_its_function():
    values = re.findall(r"^update \d+: (.*)$", run(EXAMPLES / "rosenbrock.py", 20), re.M)
    assert len(values) == 10
    assert float(values[-1]) < 98 < 99  # the value at the start; the example's own run is longer


def test_the_examples_of_the_page_run():
    page = (ROOT / "docs" / "python.md").read_text()
    train, follow, *_, function = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    more = '"CartPole-v1", workers=0, n=4, max_gradient_updates=2'
    observation = np.zeros(4, np.float32)
    exec(
        re.sub(r'"CartPole-v1"(, .*workers=2)?', more, train + follow), {"observation": observation}
    )
    names: dict[str, Any] = {}
    exec(function, names)
    assert np.abs(names["theta"] - 1).max() < 0.1


def run(*arguments, **variables):
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": str(ROOT)} | variables,
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_the_policy_in_a_harness_walks(program):
    status, out, err = program(
        "--test", "--restore", EXAMPLES / "harness.safetensors", "--json", "--episodes", 3,
        "--env-wrapper", "harness:Harness", "strength=0.025",
    )  # fmt: skip
    assert (status, err) == (0, "")
    assert json.loads(out)["mean"] > 4000


class Still(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment that does not move, so that the springs' force shows their strength."""

    def step(self, action):
        return None, 0.0, False, False, {}


def test_a_harness_weakens_by_its_half_life_and_is_whole_again_in_the_next_episode():
    harness: Any = importlib.import_module("examples.harness")
    still = Still(gymnasium.make("Humanoid-v5"))
    env, forces = harness.Harness(still, strength=0.4, half_life=2), []
    for _ in range(2):
        env.reset(seed=0)
        for _ in range(3):
            env.step(np.zeros(17))
            forces.append(env.data.body("torso").xfrc_applied.copy())
    assert np.abs(forces[0]).max() > 1e-3
    assert np.allclose(forces[2], forces[0] / 2)
    assert np.allclose(forces[3:], forces[:3])
    env.close()
