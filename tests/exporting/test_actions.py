"""The torch module that makes actions, held to the one of the actors."""

import numpy as np
import pytest
import torch
from gymnasium import spaces

from es.environments.spaces import describe_actions
from es.exporting.actions import Decoder
from es.networks import outputs_needed
from es.networks.actors import make_decoder
from es.networks.kernels import choose

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
    "drawn": (spaces.Discrete(5), {"sample": False}),
}


@pytest.mark.parametrize("name", ACTIONS)
def test_actions_are_those_of_the_actors(name):
    space, more = ACTIONS[name]
    actions = describe_actions(space, name) | more
    outputs = np.empty(outputs_needed(actions), np.float32)
    expect, decode, largest = make_decoder(actions, outputs), Decoder(actions), np.zeros(1, int)
    generator = np.random.default_rng(0)
    for scale in (0.1, 1, 10):
        outputs[:] = scale * generator.standard_normal(outputs.size)
        choose(outputs, np.array([outputs.size]), largest)
        found, expected = decode(torch.from_numpy(outputs.copy())).numpy(), expect(int(largest[0]))
        assert space.contains(found)
        assert (found.shape, found.dtype) == (np.shape(expected), space.dtype)
        assert np.allclose(found, expected, rtol=1e-6, atol=1e-6)
        assert found.dtype.kind == "f" or np.array_equal(found, expected)
