"""Exported policies, played by onnxruntime or by torch alone."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from es.loading import load_policy
from tests.processes import ROOT

NEEDS_ONNX = pytest.mark.skipif(
    not (importlib.util.find_spec("onnxscript") and importlib.util.find_spec("onnxruntime")),
    reason="ONNX is not installed (pip install -r requirements-dev.txt)",
)
TRAINED = ROOT / "trained"
MEMORY = {"env_name": "memory:HiddenVelocities-v0", "net": "memory:GRUPolicy"}
STEPS = 1000
PLAY = """
import json, sys
import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession("policy.onnx")
policy = json.loads(session.get_modelmeta().custom_metadata_map["policy"])
recorded, actions = np.load("recorded.npz"), []
for observation, begins in zip(recorded["observations"], recorded["begins"]):
    inputs = {"observation": observation}
    if "state" in policy["inputs"]:
        initial = np.array(policy["initial_state"], policy["inputs"]["state"]["dtype"])
        inputs["state"] = initial if begins else state
    action, state = [*session.run(None, inputs), None][:2]
    actions.append(action)
np.save("actions.npy", actions)
assert not {"es", "torch", "numba", "cv2", "gymnasium"} & sys.modules.keys()
"""


@pytest.fixture
def alone():
    """Runs a program in an interpreter that knows nothing of the project; what it prints."""

    def run(program: str) -> str:
        command = [sys.executable, "-I", "-W", "error", "-c", program]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    return run


def record(policy):
    """What the policy sees and does in 1,000 steps, and which of them begin an episode."""
    env = gymnasium.make(policy.env_id, disable_env_checker=True, **policy.env_kwargs)
    seen: list[np.ndarray] = []
    done: list[Any] = []
    begins: list[bool] = []
    over = True
    while len(seen) < STEPS:
        begins.append(over)
        if over:
            observation, info = env.reset(seed=len(seen))
            policy.reset()
        seen.append(np.array(observation))
        done.append(policy(observation, info))
        observation, _, terminated, truncated, info = env.step(done[-1])
        over = terminated or truncated
    env.close()
    return np.array(seen), np.array(done), begins


@NEEDS_ONNX
@pytest.mark.parametrize(
    ("folder", "name", "own"),
    [
        ("trained", "LunarLander-v3", {}), ("trained", "HalfCheetah-v5", {}),
        ("trained", "PongDeterministic-v4", {}), ("examples", "memory", MEMORY),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_actions_are_those_of_load_policy(program, alone, monkeypatch, folder, name, own):
    """--obs-norm, discrete actions (drawn in training), continuous; Convnet-LSTM; one's own GRU."""
    monkeypatch.syspath_prepend(ROOT / "examples")
    path = ROOT / folder / f"{name}.safetensors"
    given = [word for key, value in own.items() for word in ("--" + key.replace("_", "-"), value)]
    flags = ("--eval-episodes", 1, "--max-episode-length", 100, *given)
    status, out, err = program("--export", "policy", "--restore", path, *flags)
    assert (status, err) == (0, "")
    drawn = name == "LunarLander-v3"
    seen, expected, begins = record(load_policy(path, greedy=drawn, **own))
    np.savez("recorded.npz", observations=seen, begins=begins)
    alone(PLAY)
    found = np.load("actions.npy")
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    assert np.abs(found - expected).max() < (1e-5 if found.dtype.kind == "f" else 1)

    extra, state = {"policy": ""}, torch.empty(0)
    play = torch.export.load("policy.pt2", extra_files=extra).module()
    policy = json.loads(extra["policy"])
    for observation, begin, action in zip(seen[:50], begins, expected, strict=False):
        given = [torch.from_numpy(observation)]
        if "state" in policy["inputs"]:
            dtype = getattr(torch, policy["inputs"]["state"]["dtype"])
            given.append(torch.tensor(policy["initial_state"], dtype=dtype) if begin else state)
        result = play(*given)
        ours, state = result if isinstance(result, tuple) else (result, state)
        assert np.abs(ours.numpy() - action).max() < (1e-5 if found.dtype.kind == "f" else 1)
    assert policy["greedy"] == drawn == ("likeliest" in out)
    assert f"mean {policy['score']['mean']:.2f}, " in out


@NEEDS_ONNX
def test_the_loop_of_the_docs_plays_without_the_project(program, alone):
    path = TRAINED / "CartPole-v1.safetensors"
    status, out, err = program("--export", "policy", "--restore", path, "--eval-episodes", 2)
    assert (status, err) == (0, "")
    assert sorted(path.name for path in Path().iterdir()) == ["policy.onnx", "policy.pt2"]
    assert "\nExported policy.onnx: mean 500.00, standard deviation 0.00\n" in out
    section = (ROOT / "docs" / "python.md").read_text().partition("## Export it")[2]
    assert alone(section.partition("```python\n")[2].partition("```")[0]) == "500.0\n"
    content = Path("policy.onnx").read_bytes()
    assert not [word for word in (b"es.exporting", b".py", b"site-packages") if word in content]


def test_metadata_say_what_is_played_and_how_well(program):
    flags = (
        "--small-net", "--env-name", "Pendulum-v1", "--env-kwargs", "g=5.0", "--frame-skip", 2,
        "--env-wrapper", "gymnasium.wrappers:ClipReward", "max_reward=0",
    )  # fmt: skip
    training = ("--n", 2, "--seed", 1, "--workers", 0, "--max-gradient-updates", 1)
    assert program(*flags, *training, "--eval-episodes", 3, "--run-dir", "run")[0] == 0
    status, out, err = program("--export", "folder/out.pt2", "--restore", "run", "--silent")
    assert (status, out, err) == (0, "", "")
    extra = {"policy": ""}
    play = torch.export.load("folder/out.pt2", extra_files=extra).module()
    assert -2 <= float(play(torch.zeros(3))) <= 2
    policy = json.loads(extra["policy"])
    score = json.loads(
        program("--test", "--restore", "run/latest.safetensors", "--json", "--episodes", 3)[1]
    )
    own = policy["score"]
    assert (own["mean"], own["std"]) == pytest.approx((score["mean"], score["std"]), rel=1e-3)
    assert own["episodes"] == 3
    del policy["score"], policy["made_by"]
    assert policy == {
        "env_id": "Pendulum-v1", "env_kwargs": {"g": 5.0}, "frame_skip": 2, "noop_max": 0,
        "env_wrappers": [{"name": "gymnasium.wrappers:ClipReward", "kwargs": {"max_reward": 0}}],
        "fire_reset": False, "max_episode_length": 100000, "initial_state": [], "greedy": False,
        "inputs": {"observation": {"dtype": "float32", "shape": [3]}}, "update": 1, "frames": 200,
    }  # fmt: skip


def test_a_file_that_plays_otherwise_than_the_policy_is_not_written(program):
    flags = ("--env-name", "Pendulum-v1", "--net", "tests.nets:Exported")
    short = ("--max-episode-length", 10, "--eval-episodes", 1)
    training = ("--n", 2, "--workers", 0, "--max-gradient-updates", 1, "--run-dir", "run")
    assert program(*flags, *short, *training)[0] == 0
    status, _, err = program("--export", "out.pt2", "--restore", "run", "--net", flags[-1])
    assert status == 2
    assert "--export out.pt2: its actions are not those of the policy in " in err
    assert err.count("\n") == 1
    assert not Path("out.pt2").exists()


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        ("--export out.onnx", "--export needs --restore CHECKPOINT"),
        ("--export out.pth --restore X", "--export 'out.pth' must be a file whose name ends in"),
        ("--export '' --restore X", "--export '' must be a file"),
        ("--export out --test --restore X", "--test and --export out are two commands. Give one"),
        ("--export out --restore X --episodes 3", "--episodes applies only to --test. Give both"),
        ("--export folder.pt2 --restore X", "--export folder.pt2: cannot be written (it is a"),
        ("--export X/out.pt2 --restore X", "X/out.pt2: cannot be written (X is not a directory)"),
        ("--export . --restore X", "--export .: cannot be written"),
        ("--export /proc/out.pt2 --restore X", "--export /proc/out.pt2: cannot be written"),
        (
            "--export out --restore X --obs-norm",
            "The policy was made for the checkpoint's value",
        ),
    ],
)
def test_wrong_flags_are_errors_in_one_line(program, flags, complaint):
    Path("X").symlink_to(TRAINED / "CartPole-v1.safetensors")
    Path("folder.pt2").mkdir()
    status, out, err = program(*(word.strip("'") for word in flags.split(" ")))
    assert (status, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert complaint in err
    assert {path.name for path in Path().iterdir()} == {"X", "folder.pt2"}


def test_without_onnxscript_one_line_says_what_to_install(program, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    path = TRAINED / "CartPole-v1.safetensors"
    status, _, err = program("--export", "out", "--restore", path)
    assert status == 2
    assert "pip install -r requirements-extra.txt, or export out.pt2, which needs" in err
