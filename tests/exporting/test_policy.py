"""A policy as one module, of any network, and its graph."""

import pytest
import torch
from gymnasium import spaces
from torch import nn

from es.exporting.files import describe, example, inputs, trace
from es.exporting.policy import ExportedPolicy
from es.exporting.views import VectorView

SPACE = spaces.Box(-1, 1, (3,))


class Memory(nn.Module):
    """A GRU and counters, of other types; learned: begins with a parameter, not with zeros."""

    def __init__(self, *, learned):
        super().__init__()
        self.cell, self.dropout = nn.GRUCell(3, 4), nn.Dropout(0.5)
        self.first = nn.Parameter(torch.randn(4)) if learned else torch.zeros(4)

    def forward(self, observation, state):
        hidden, steps, none = state or (self.first, {"steps": torch.tensor(0)}, None)
        hidden = self.cell(self.dropout(observation), hidden)
        return hidden * (1 + steps["steps"] % 3), (hidden, {"steps": steps["steps"] + 1}, none)


class Returns(nn.Module):
    def __init__(self, result):
        super().__init__()
        self.result = result

    def forward(self, observation, state):
        return self.result(observation, state)


@pytest.mark.parametrize("learned", [True, False])
def test_any_state_travels_as_one_vector(learned):
    torch.manual_seed(0)
    network, observation = Memory(learned=learned), example(SPACE)
    policy = ExportedPolicy(VectorView(SPACE, None), network, nn.Identity(), observation)
    assert policy.initial_state.shape == (5 + learned,)
    assert policy.initial_state.dtype == torch.float64  # which holds the counter
    graph = trace(policy, observation).module()
    memory, eager, state = None, policy.initial_state, policy.initial_state
    for _ in range(5):
        observation = example(SPACE)
        expected, memory = network(observation, memory)
        action, eager = policy(observation, eager)
        outputs, state = graph(observation, state)
        assert torch.allclose(outputs, expected)
        assert torch.allclose(action, expected)


@pytest.mark.parametrize("result", [lambda x, _: x * 2, lambda x, _: (x * 2, None)])
def test_a_network_without_a_state_needs_none(result):
    observation = example(SPACE)
    policy = ExportedPolicy(VectorView(SPACE, None), Returns(result), nn.Identity(), observation)
    assert policy.initial_state.shape == (0,)
    assert torch.equal(policy(observation), observation * 2)
    assert torch.equal(trace(policy, observation).module()(observation), observation * 2)


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (lambda x, s: (x, x if s is None else torch.cat([s, x])), "another shape"),
        (lambda x, s: (x, (x, 1)), "not int"),
    ],
)
def test_a_state_that_does_not_fit_into_a_vector_is_an_error(result, words):
    with pytest.raises(ValueError, match=words):
        ExportedPolicy(VectorView(SPACE, None), Returns(result), nn.Identity(), example(SPACE))


def test_outputs_drawn_at_random_are_an_error():
    draws = Returns(lambda x, _: x + torch.rand(3))
    with pytest.raises(ValueError, match="it gives other outputs each time"):
        ExportedPolicy(VectorView(SPACE, None), draws, nn.Identity(), example(SPACE))


def test_buffers_that_change_are_an_error():
    class Counts(nn.Module):
        count: torch.Tensor

        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(()))

        def forward(self, observation, state):
            self.count.add_(1)
            return observation * self.count

    with pytest.raises(ValueError, match="it changes its count while it plays"):
        ExportedPolicy(VectorView(SPACE, None), Counts(), nn.Identity(), example(SPACE))


def test_parts_of_an_observation_are_inputs_of_their_own():
    space = spaces.Dict(a=spaces.Discrete(3), b=spaces.Tuple([SPACE, spaces.MultiBinary(2)]))
    assert describe(inputs(example(space))) == {
        "observation.a": {"dtype": "int64", "shape": []},
        "observation.b.0": {"dtype": "float32", "shape": [3]},
        "observation.b.1": {"dtype": "int8", "shape": [2]},
    }
