"""Packages of environments, as the page about environments names them."""

import importlib.util
import re
import shlex
from pathlib import Path

import pytest

from tests.checkpoints import rows
from tests.processes import ROOT

PAGE = (ROOT / "docs" / "environments.md").read_text()
COMMANDS = [
    shlex.split(line)
    for line in re.findall(r"^python main.py (--env-name .*)$", PAGE, re.MULTILINE)
    if line.split()[1].startswith(("minigrid", "mo_gymnasium", "vizdoom"))
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[1])
def test_it_is_trained_as_the_page_says(program, command):
    package = re.split(r"[.:]", command[1])[0]
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    quick = ("--n", 2, "--workers", 0, "--max-gradient-updates", 1, "--max-episode-length", 20)
    status, _, err = program(*command, *quick, "--run-dir", "run", "--target-return", "None")
    assert (status, err) == (0, "")
    assert len(rows(Path("run"))) == 1
