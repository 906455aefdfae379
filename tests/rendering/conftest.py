"""A policy that tests of videos play."""

import pytest


@pytest.fixture
def checkpoint(program):
    """Of a policy that keeps the pole up for a while."""
    program.train("--max-gradient-updates", 3, "--run-dir", "run", "--save-every", 1)
    return "run/latest.safetensors"
