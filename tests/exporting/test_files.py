"""Files, played by onnxruntime, beside the policy that they are made of."""

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from es.environments.observations import View
from es.exporting.files import OnnxFile, Play, example, inputs, trace
from es.exporting.policy import ExportedPolicy
from es.exporting.shaped import make_shaped_view
from es.exporting.views import VectorView
from tests.exporting.test_views import IMAGES, Shows

pytest.importorskip("onnxscript", reason="pip install -r requirements-dev.txt")
pytest.importorskip("onnxruntime", reason="pip install -r requirements-dev.txt")


class Network(nn.Module):
    """What a function makes of an observation."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, observation, state):
        return self.function(observation)


def written(view, network, observation) -> tuple[Play, torch.Tensor]:
    """What plays the ONNX file of a view and a network, and the first state."""
    policy = ExportedPolicy(view, network, nn.Identity(), observation)
    names = [*inputs(observation), *(["state"] if policy.initial_state.numel() else [])]
    return OnnxFile(trace(policy, observation), names).load(), policy.initial_state


def test_images_of_every_kind_are_seen_as_in_training_from_one_of_a_single_colour_on():
    """Whose deviation is 0, which the network's input is divided by, plus 1e-8."""
    space = spaces.Dict(IMAGES)
    space.seed(0)
    env, black = Shows(space), {name: np.zeros_like(space[name].sample()) for name in space}
    network = Network(lambda seen: torch.stack([*seen.values()]))
    play, state = written(make_shaped_view(env), network, example(space))
    view = View(env, shaped=True)
    view.reset()
    for observation in (black, black, *(space.sample() for _ in range(2))):
        tensors = {name: torch.from_numpy(observation[name]) for name in space}
        found, state = play(tensors, state)
        expected = view(observation)
        for name, image in zip(space, found, strict=True):
            assert np.abs(image - expected[name]).max() < 1e-4, name


def test_a_small_constant_of_ones_own_network_is_kept():
    network = Network(lambda x: x / (x.norm() + 1e-8))
    play, state = written(VectorView(spaces.Box(-1, 1, (2,)), None), network, torch.ones(2))
    assert play(torch.zeros(2), state)[0].tolist() == [0, 0]
    assert play(torch.tensor([3.0, 4.0]), state)[0] == pytest.approx([0.6, 0.8])
