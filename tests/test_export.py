"""Exported policies, played by onnxruntime or by torch alone."""

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from es.environments.spaces import describe_actions
from es.envs import Preprocessor, describe_env, make_bare_env
from es.export import ActionDecoder, ExportedPolicy, View, as_tensors, inputs, player, to_onnx
from es.networks import actors, outputs_needed
from es.networks.kernels import choose
from es.policy import load_policy
from tests.processes import ROOT, output
from tests.strange import SPACES, Strange

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
        return output(sys.executable, "-I", "-W", "error", "-c", program)

    return run


def metadata(path):
    onnxruntime = pytest.importorskip("onnxruntime")
    return json.loads(
        onnxruntime.InferenceSession(path).get_modelmeta().custom_metadata_map["policy"]
    )


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
        ("examples", "memory", MEMORY), ("new", "PongDeterministic-v4", {}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_actions_are_those_of_load_policy(program, alone, monkeypatch, folder, name, own):
    """--obs-norm, discrete actions (drawn in training), continuous; one's own GRU; Convnet-LSTM."""
    monkeypatch.syspath_prepend(ROOT / "examples")
    path = ROOT / folder / f"{name}.safetensors"
    if folder == "new":  # with weights so large that its actions differ
        size = ("--n", 2, "--max-gradient-updates", 1, "--max-episode-length", 40)
        program("--env-name", name, *size, "--sigma", 0.5, "--lr", 1, "--seed", 1, "--workers", 0)
        path = Path("checkpoints") / name / "latest.safetensors"
    given = [word for key, value in own.items() for word in ("--" + key.replace("_", "-"), value)]
    flags = ("--eval-episodes", 1, "--max-episode-length", 100, *given)
    status, out, err = program("--export", "policy.onnx", "--restore", path, *flags)
    assert (status, err) == (0, "")
    drawn = name == "LunarLander-v3"
    seen, expected, begins = record(load_policy(path, greedy=drawn, **own))
    np.savez("recorded.npz", observations=seen, begins=begins)
    alone(PLAY)
    found = np.load("actions.npy")
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    assert len(np.unique(expected)) > 1
    assert np.abs(found - expected).max() < (1e-5 if found.dtype.kind == "f" else 1)

    policy = metadata("policy.onnx")
    assert policy["greedy"] == drawn == ("likeliest" in out)
    assert f"mean {policy['score']['mean']:.2f}, " in out


@NEEDS_ONNX
def test_the_loop_of_the_docs_plays_without_the_project(program, alone):
    path = TRAINED / "CartPole-v1.safetensors"
    status, out, err = program("--export", "policy.onnx", "--restore", path, "--eval-episodes", 2)
    assert (status, err) == (0, "")
    assert sorted(path.name for path in Path().iterdir()) == ["policy.onnx"]
    assert "\nExported policy.onnx: mean 500.00, standard deviation 0.00\n" in out
    section = (ROOT / "docs" / "python.md").read_text().partition("## Export it")[2]
    assert alone(section.partition("```python\n")[2].partition("```")[0]) == "500.0\n"
    content = Path("policy.onnx").read_bytes()
    assert not [word for word in (b"es.export", b".py", b"site-packages") if word in content]


@NEEDS_ONNX
def test_metadata_say_what_is_played_and_how_well(program):
    flags = (
        "--small-net", "--env-name", "Pendulum-v1", "--env-kwargs", "g=5.0", "--frame-skip", 2,
        "--env-wrapper", "gymnasium.wrappers:ClipReward", "max_reward=0",
    )  # fmt: skip
    training = ("--n", 2, "--seed", 1, "--workers", 0, "--max-gradient-updates", 1)
    assert program(*flags, *training, "--eval-episodes", 3, "--run-dir", "run")[0] == 0
    status, out, err = program("--export", "folder/out.onnx", "--restore", "run", "--silent")
    assert (status, out, err) == (0, "", "")
    policy = metadata("folder/out.onnx")
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


@NEEDS_ONNX
def test_a_file_that_plays_otherwise_than_the_policy_is_not_written(program):
    flags = ("--env-name", "Pendulum-v1", "--net", "tests.nets:Exported")
    short = ("--max-episode-length", 10, "--eval-episodes", 1)
    training = ("--n", 2, "--workers", 0, "--max-gradient-updates", 1, "--run-dir", "run")
    assert program(*flags, *short, *training)[0] == 0
    status, _, err = program("--export", "out.onnx", "--restore", "run", "--net", flags[-1])
    assert status == 2
    assert "--export out.onnx: its actions are not those of the policy in " in err
    assert err.count("\n") == 1
    assert not Path("out.onnx").exists()


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        ("--export out.pt2", "--export 'out.pt2' must be a file whose name ends in .onnx"),
        ("--export folder.onnx", "--export folder.onnx: cannot be written (it is a directory)"),
        ("--export X/out.onnx", "--export X/out.onnx: cannot be written (not a directory)"),
    ],
)
def test_wrong_flags_are_errors_in_one_line(program, flags, complaint):
    Path("X").symlink_to(TRAINED / "CartPole-v1.safetensors")
    Path("folder.onnx").mkdir()
    status, out, err = program(*flags.split(), "--restore", "X")
    assert (status, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert complaint in err
    assert {path.name for path in Path().iterdir()} == {"X", "folder.onnx"}


def test_without_onnxscript_one_line_says_what_to_install(program, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    path = TRAINED / "CartPole-v1.safetensors"
    status, _, err = program("--export", "out.onnx", "--restore", path)
    assert status == 2
    assert "--export out.onnx: needs onnxscript and onnxruntime: pip install -r " in err


# ---- parts ----

SPACE = spaces.Box(-1, 1, (3,))


class Returns(nn.Module):
    def __init__(self, result):
        super().__init__()
        self.result = result

    def forward(self, observation, state):
        return self.result(observation, state)


def exported(result):
    """A policy of which a function is the network, and an example of its observations."""
    observation = torch.ones(3)
    return ExportedPolicy(
        View(Strange(SPACE)), Returns(result), nn.Identity(), observation
    ), observation


@NEEDS_ONNX
def test_a_tuple_of_tensors_travels_as_one_vector_and_a_small_constant_is_kept():
    """1e-8, which torch's optimiser of ONNX files takes for zero."""

    def result(x, state):
        total, last = state or (torch.zeros(3), torch.zeros(1, 3))
        return (x + total) / (x.norm() + 1e-8), (total + x, last * 0.5 + x)

    policy, observation = exported(result)
    assert policy.initial_state.shape == (6,)
    play = player(to_onnx(policy, observation), inputs(observation, policy.initial_state))
    state, memory = policy.initial_state, None
    for x in (torch.zeros(3), torch.tensor([3.0, 4.0, 0.0]), torch.ones(3)):
        expected, memory = result(x, memory)
        action, state = play(x, state)
        assert action == pytest.approx(expected.numpy())


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (lambda x, s: (x, x if s is None else torch.cat([s, x])), "another shape"),
        (lambda x, s: (x, (x, 1)), "float32 tensor or a tuple"),
        (lambda x, s: (x, x.double()), "float32 tensor or a tuple"),
        (lambda x, s: (x if s is None else x + 1, x), "as it treats None"),
    ],
)
def test_another_state_is_an_error(result, words):
    with pytest.raises(ValueError, match=words):
        exported(result)


def test_parts_of_an_observation_are_inputs_of_their_own():
    space = spaces.Dict(a=spaces.Discrete(3), b=spaces.Tuple([SPACE, spaces.MultiBinary(2)]))
    tensors = inputs(as_tensors(space.sample()), torch.empty(0))
    assert {name: (each.dtype, each.shape) for name, each in tensors.items()} == {
        "observation.a": (torch.int64, ()),
        "observation.b.0": (torch.float32, (3,)),
        "observation.b.1": (torch.int8, (2,)),
    }


BOX = spaces.Box(np.array([[-1, 0], [2, -0.1]]), np.array([[1, 5], [2.5, 0.1]]), dtype=np.float64)
ACTIONS: dict[str, tuple[spaces.Space, dict]] = {
    "discrete": (spaces.Discrete(5, start=-2), {}),
    "multi-discrete": (
        spaces.MultiDiscrete(np.array([[2, 3], [4, 5]]), start=np.array([[1, 0], [0, 7]])),
        {},
    ),
    "multi-binary": (spaces.MultiBinary((2, 3)), {}),
    "box": (BOX, {}),
    "clipped": (BOX, {"squash": "clip"}),
    "bins": (BOX, {"bins": 7}),
    "float32": (spaces.Box(-0.4, 0.4, (3,)), {"noise": 0.5}),
    "whole numbers": (spaces.Box(-3, 9, (2, 2), np.int16), {}),
    "switches": (spaces.Box(0, 1, (5,), np.bool_), {"bins": 2}),
}


@pytest.mark.parametrize("name", ACTIONS)
def test_actions_are_those_of_the_actors(name):
    space, more = ACTIONS[name]
    actions = describe_actions(space, name) | more
    outputs = np.empty(outputs_needed(actions), np.float32)
    expect, decode = actors.Decoder(actions, outputs).decode, ActionDecoder(actions)
    largest = np.zeros(1, int)
    generator = np.random.default_rng(0)
    for scale in (0.1, 1, 10):
        outputs[:] = scale * generator.standard_normal(outputs.size)
        choose(outputs, np.array([outputs.size]), largest)
        found, expected = decode(torch.from_numpy(outputs.copy())).numpy(), expect(int(largest[0]))
        assert space.contains(found)
        assert (found.shape, found.dtype) == (np.shape(expected), space.dtype)
        assert np.allclose(found, expected, rtol=1e-6, atol=1e-6)
        assert found.dtype.kind == "f" or np.array_equal(found, expected)


# ---- what the network sees: the same as `Preprocessor` shows ----

NAMES = ("Parts", "Digits", "Doubles", "ChannelsFirst", "Scene", "Planes")
OBSERVATIONS: dict[str, spaces.Space] = {name: SPACES[name][0] for name in NAMES} | {
    "Discrete": spaces.Discrete(5, start=3),
    "MultiDiscrete": spaces.MultiDiscrete(
        np.array([[2, 3], [4, 5]]), start=np.array([[1, 0], [0, 7]])
    ),
    "Grid": spaces.Box(0, 255, (7, 7, 3), np.uint8),
    "gray": spaces.Box(0, 255, (160, 160), np.uint8),
    "large": spaces.Box(0, 255, (400, 601, 3), np.uint8),
    "to 1": spaces.Box(0, 1, (64, 70, 3), np.float32),
    "alone": spaces.Dict(picture=spaces.Box(0, 255, (28, 30, 1), np.uint8)),
}
CUSTOM = ("Scene", "Planes", "Discrete", "large")  # for a network that keeps their shape


def compare(preprocess, view, observations):
    """Show an episode's observations to both."""
    preprocess.reset()
    state = view.initial
    for observation in observations:
        found, state = view(as_tensors(observation), state)
        expected = preprocess(observation)
        if not isinstance(expected, dict):
            expected, found = {"": expected}, {"": found}
        assert found.keys() == expected.keys()
        for key, tensor in found.items():
            assert tensor.dtype == torch.float32
            assert tensor.shape == np.shape(expected[key])
            np.testing.assert_allclose(tensor, expected[key], atol=1e-4)


@pytest.mark.parametrize(
    ("name", "shaped"),
    [(name, False) for name in OBSERVATIONS if name != "Scene"] + [(name, True) for name in CUSTOM],
)
def test_observations_are_seen_as_in_training(name, shaped):
    space = OBSERVATIONS[name]
    space.seed(0)
    env = Strange(space)
    view = View(env, keeps_shape=shaped)
    compare(
        Preprocessor(env, {"id": "", "keeps_shape": shaped}), view, [space.sample() for _ in "abcd"]
    )


@pytest.mark.parametrize("kwargs", [[], ["obs_type=grayscale"]])
def test_atari_screens_are_seen_as_in_training(kwargs):
    description = describe_env("ALE/Boxing-v5", kwargs)
    bare = make_bare_env(description)
    bare.action_space.seed(0)
    screens = [bare.reset(seed=3)[0]]
    screens += [bare.step(bare.action_space.sample())[0] for _ in range(10)]
    compare(Preprocessor(bare, description), View(bare), screens)
    bare.close()


def test_vectors_are_normalised_in_double_precision():
    space = spaces.Box(-1e9, 1e9, (3,), np.float64)
    mean, factor = np.array([1e8, 0, -3.0]), np.array([4.0, 100.0, 0.5])
    view = View(Strange(space), np.stack([mean, factor]), clip=5)
    observation = np.array([1e8 + 1 / 3, 1.0, -3.5])
    found, _ = view(torch.from_numpy(observation), view.initial)
    expected = np.clip((observation - mean) * factor, -5, 5).astype(np.float32)
    assert np.array_equal(found.numpy(), expected)
