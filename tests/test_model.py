from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from es.config import Config
from es.errors import UsageError
from es.model import MLP, ConvLSTM, flatten, initial_theta, make_module, unflatten, with_shapes
from es.policy import describe_network
from tests.networks.descriptions import convlstm, discrete, mlp

MLP_NETWORK, CONV_NETWORK = mlp(), convlstm()
PARTS = ("weight", "bias")


def test_layer_names_shapes_and_sizes_are_those_of_pytorch_es():
    assert {name: tuple(shape) for name, shape in MLP_NETWORK["shapes"].items()} == {
        "linear1.weight": (64, 4), "linear1.bias": (64,),
        "linear2.weight": (64, 64), "linear2.bias": (64,),
        "actor_linear.weight": (2, 64), "actor_linear.bias": (2,),
    }  # fmt: skip
    shapes = CONV_NETWORK["shapes"]
    assert {name.split(".")[0] for name in shapes} == {
        "conv1", "conv2", "conv3", "conv4", "lstm", "actor_linear"
    }  # fmt: skip
    assert tuple(shapes["lstm.weight_ih"]) == (4 * 256, 288)
    assert initial_theta(CONV_NETWORK, 0).size == 588_710


def test_convlstm_against_its_formula():
    module = make_module(CONV_NETWORK)
    assert isinstance(module, ConvLSTM)
    images = torch.randn(3, 1, 42, 42)
    hidden, cell = torch.zeros(256), torch.zeros(256)
    state = None
    for image in images:
        x = image[None]
        convolutions: list[Any] = [module.conv1, module.conv2, module.conv3, module.conv4]
        for conv in convolutions:
            x = functional.selu(functional.conv2d(x, conv.weight, conv.bias, 2, 1))
        assert x.shape == (1, 32, 3, 3)
        lstm = module.lstm
        gates = lstm.weight_ih @ x.flatten() + lstm.bias_ih + lstm.weight_hh @ hidden + lstm.bias_hh
        i, f, g, o = gates.split(256)
        cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
        hidden = o.sigmoid() * cell.tanh()
        logits, state = module(image, state)
        torch.testing.assert_close(
            logits, module.actor_linear.weight @ hidden + module.actor_linear.bias,
            rtol=1e-4, atol=1e-5,
        )  # fmt: skip


@pytest.mark.parametrize("network", [MLP_NETWORK, CONV_NETWORK])
def test_flatten_and_unflatten_are_inverse(network):
    theta = initial_theta(network, 3)
    parameters = unflatten(network, theta)
    assert np.array_equal(flatten(network, parameters), theta)
    assert np.array_equal(flatten(network, dict(reversed(parameters.items()))), theta)
    parameters["actor_linear.bias"] += 1
    assert not np.array_equal(flatten(network, parameters), theta)


def test_flatten_refuses_what_is_not_the_network():
    parameters = unflatten(MLP_NETWORK, initial_theta(MLP_NETWORK, 0))
    with pytest.raises(ValueError, match="layers"):
        flatten(CONV_NETWORK, parameters)
    with pytest.raises(ValueError, match=r"actor_linear\.weight"):
        flatten(mlp(actions=3), parameters)


def test_initialisation_depends_on_its_seed_and_leaves_torch_alone():
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    assert np.array_equal(initial_theta(MLP_NETWORK, 1), initial_theta(MLP_NETWORK, 1))
    assert not np.array_equal(initial_theta(MLP_NETWORK, 1), initial_theta(MLP_NETWORK, 2))
    assert torch.equal(torch.rand(3), expected)


def test_the_network_follows_the_observations():
    config = Config(env_name="Some-v0")
    assert with_shapes(describe_network(config, (4,), discrete(2))) == MLP_NETWORK
    assert with_shapes(describe_network(config, (1, 42, 42), discrete(6))) == CONV_NETWORK


@pytest.mark.parametrize(
    ("shape", "settings", "words"),
    [
        ((1, 42, 42), {"small_net": True}, "--small-net"),
        ((1, 42, 42), {"obs_norm": True}, "--obs-norm applies only to the MLP"),
        ((1, 42, 42), {"hidden_sizes": (64,)}, "--hidden-sizes 64 applies only to the MLP"),
        ((1, 42, 42), {"activation": "tanh"}, "--activation tanh applies only to the MLP"),
        ((4,), {"vbn": True}, "--vbn applies only to the Convnet-LSTM"),
    ],
)
def test_settings_of_the_other_network_are_errors(shape, settings, words):
    with pytest.raises(UsageError, match=words):
        describe_network(Config(env_name="Some-v0", **settings), shape, discrete(2))


def selu(x):
    return 1.0507009873554805 * torch.where(x > 0, x, 1.6732632423543772 * (x.exp() - 1))


@pytest.mark.parametrize("hidden", [[], [7], [64, 64]])
@pytest.mark.parametrize("activation", ["selu", "tanh", "relu"])
def test_mlp_against_its_formula(hidden, activation):
    module = make_module(mlp(3, 5, hidden=hidden, activation=activation))
    assert isinstance(module, MLP)
    p = dict(module.named_parameters())
    names = [f"linear{number}" for number in range(1, len(hidden) + 1)]
    assert list(p) == [f"{name}.{part}" for name in (*names, "actor_linear") for part in PARTS]
    x = expected = torch.tensor([0.5, -1.0, 2.0])
    for name in names:
        sums = p[f"{name}.weight"] @ expected + p[f"{name}.bias"]
        expected = {"selu": selu, "tanh": torch.tanh, "relu": torch.relu}[activation](sums)
    expected = p["actor_linear.weight"] @ expected + p["actor_linear.bias"]
    torch.testing.assert_close(module(x)[0], expected)
