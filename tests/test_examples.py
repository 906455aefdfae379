"""The examples, in their folder, as their first lines say."""

import json
import sys
from pathlib import Path

import pytest

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
