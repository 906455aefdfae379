import importlib.metadata
from pathlib import Path

from es.runs import versions
from es.runs.checkpoint import save
from tests.checkpoints import read


def test_the_versions_of_what_is_installed():
    found = versions.versions()
    assert found["torch"] == importlib.metadata.version("torch")
    assert found["processor"]
    assert set(found) >= {"python", "numpy", "numba", "gymnasium", "mujoco", "ale-py"}


def test_the_same_versions_are_not_worth_a_word():
    assert versions.notice(versions.versions(), "x") == ""


def test_a_run_that_is_carried_on_under_other_versions_says_so(program):
    program.train("--max-gradient-updates", 1, "--run-dir", "run")
    ours = read("run/latest.safetensors")
    assert ours.versions == versions.versions()
    older = {**ours.versions, "torch": "1.0.0", "jax": "2"}
    save(ours._replace(versions=older), Path("run/latest.safetensors"))
    told = (
        f"was saved under jax 2 (here -), torch 1.0.0 (here {ours.versions['torch']}): results may"
    )
    _, out, _ = program("--test", "--no-render", "--restore", "run/latest.safetensors")
    assert f"run/latest.safetensors {told}" in out
    hostile = {**ours.versions, "torch": "\x1b[2J\nerror: nonsense"}
    save(ours._replace(versions=hostile), Path("hostile.safetensors"))
    _, out, _ = program("--test", "--no-render", "--restore", "hostile.safetensors")
    assert "torch \\x1b[2J\\nerror: nonsense (here" in out
    again = ("--restore", "run/latest.safetensors", "--workers", 0)
    assert told in program(*again, "--max-gradient-updates", 2)[1]
    assert told not in program(*again, "--max-gradient-updates", 3)[1]
