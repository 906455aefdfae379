"""What networks see, as torch modules: the same as `Preprocessor` shows."""

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch.utils._pytree import tree_map

from es.envs import Preprocessor, describe_env, make_bare_env
from es.exporting.views import make_view
from tests.strange import SPACES, Strange

OBSERVATIONS: dict[str, spaces.Space] = {
    name: SPACES[name][0] for name in ("Parts", "Digits", "Doubles", "ChannelsFirst")
} | {
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


def compare(preprocess, view, observations):
    """Show an episode's observations to both."""
    preprocess.reset()
    state = view.initial
    for observation in observations:
        tensors = tree_map(lambda part: torch.from_numpy(np.array(part)), observation)
        found, state = view(tensors, state)
        expected = preprocess(observation)
        if not isinstance(expected, dict):
            expected, found = {"": expected}, {"": found}
        assert found.keys() == expected.keys()
        for key, tensor in found.items():
            assert tensor.dtype == torch.float32
            assert tensor.shape == np.shape(expected[key])
            np.testing.assert_allclose(tensor, expected[key], atol=1e-4)


@pytest.mark.parametrize("name", OBSERVATIONS)
def test_observations_are_seen_as_in_training(name):
    space = OBSERVATIONS[name]
    space.seed(0)
    env = Strange(space)
    compare(Preprocessor(env, {"id": ""}), make_view(env), [space.sample() for _ in range(4)])


@pytest.mark.parametrize(
    "space",
    [
        SPACES["Scene"][0], SPACES["Planes"][0], spaces.Discrete(3),
        spaces.Box(0, 255, (96, 96, 3), np.uint8),
    ],
)  # fmt: skip
def test_a_custom_network_sees_arrays_in_their_shape_and_dicts_as_they_are(space):
    space.seed(0)
    env = Strange(space)
    view = make_view(env, keeps_shape=True)
    compare(Preprocessor(env, {"id": "", "shaped": True}), view, [space.sample() for _ in "abc"])


@pytest.mark.parametrize("kwargs", [[], ["obs_type=grayscale"]])
def test_atari_screens_are_seen_as_in_training(kwargs):
    description = describe_env("ALE/Boxing-v5", kwargs)
    bare = make_bare_env(description)
    bare.action_space.seed(0)
    screens = [bare.reset(seed=3)[0]]
    screens += [bare.step(bare.action_space.sample())[0] for _ in range(10)]
    compare(Preprocessor(bare, description), make_view(bare), screens)
    bare.close()


def test_vectors_are_normalised_in_double_precision():
    space = spaces.Box(-1e9, 1e9, (3,), np.float64)
    mean, factor = np.array([1e8, 0, -3.0]), np.array([4.0, 100.0, 0.5])
    view = make_view(Strange(space), np.stack([mean, factor]), clip=5)
    observation = np.array([1e8 + 1 / 3, 1.0, -3.5])
    found, _ = view(torch.from_numpy(observation), None)
    expected = np.clip((observation - mean) * factor, -5, 5).astype(np.float32)
    assert np.array_equal(found.numpy(), expected)
