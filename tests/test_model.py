import numpy as np
import pytest
import torch
from torch.nn import functional

from es.errors import UsageError
from model import (
    Actor,
    ConvLSTM,
    describe_network,
    flatten,
    initial_theta,
    layer_shapes,
    make_module,
    unflatten,
)

MLP_NETWORK = {"kind": "mlp", "inputs": 4, "actions": 2}
CONV_NETWORK = {"kind": "convlstm", "inputs": 1, "actions": 6}


def test_layer_names_shapes_and_sizes_are_those_of_pytorch_es():
    assert {name: tuple(shape) for name, shape in layer_shapes(MLP_NETWORK).items()} == {
        "linear1.weight": (64, 4), "linear1.bias": (64,),
        "linear2.weight": (64, 64), "linear2.bias": (64,),
        "actor_linear.weight": (2, 64), "actor_linear.bias": (2,),
    }  # fmt: skip
    shapes = layer_shapes(CONV_NETWORK)
    assert {name.split(".")[0] for name in shapes} == {
        "conv1", "conv2", "conv3", "conv4", "lstm", "actor_linear"
    }  # fmt: skip
    assert tuple(shapes["lstm.weight_ih"]) == (4 * 256, 288)
    assert initial_theta(CONV_NETWORK, 0).size == 588_710


def test_mlp_against_its_formula():
    module = make_module(MLP_NETWORK)
    x = torch.tensor([0.5, -1.0, 2.0, 0.1])

    def selu(value: torch.Tensor) -> torch.Tensor:
        negative = 1.6732632423543772 * (value.exp() - 1)
        return 1.0507009873554805 * torch.where(value > 0, value, negative)

    p = dict(module.named_parameters())
    h = selu(p["linear1.weight"] @ x + p["linear1.bias"])
    h = selu(p["linear2.weight"] @ h + p["linear2.bias"])
    expected = p["actor_linear.weight"] @ h + p["actor_linear.bias"]
    torch.testing.assert_close(module(x)[0], expected)


def test_convlstm_against_its_formula():
    module = make_module(CONV_NETWORK)
    assert isinstance(module, ConvLSTM)
    images = torch.randn(3, 1, 42, 42)
    hidden, cell = torch.zeros(256), torch.zeros(256)
    state = module.initial_state()
    for image in images:
        x = image[None]
        for conv in (module.conv1, module.conv2, module.conv3, module.conv4):
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
def test_the_actor_plays_the_bound_parameters_as_the_module_does(network):
    rng = np.random.default_rng(0)
    actor, module = Actor(network), make_module(network)
    shape = (4,) if network["kind"] == "mlp" else (1, 42, 42)
    for episode in range(2):
        theta = initial_theta(network, seed=episode)
        module.load_state_dict(unflatten(network, theta))
        actor.bind(theta)
        actor.reset()
        state = module.initial_state()
        for _ in range(20):
            observation = rng.normal(size=shape).astype(np.float32)
            logits, state = module(torch.from_numpy(observation), state)
            assert actor.act(observation) == int(logits.argmax())


def test_reset_forgets_the_episode_before():
    actor = Actor(CONV_NETWORK)
    actor.bind(initial_theta(CONV_NETWORK, 0))
    image = np.random.default_rng(0).normal(size=(1, 42, 42)).astype(np.float32)
    actor.reset()
    first = actor.logits(image).clone()
    assert not torch.equal(actor.logits(image), first)
    actor.reset()
    assert torch.equal(actor.logits(image), first)


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
        flatten({**MLP_NETWORK, "actions": 3}, parameters)


def test_initialisation_depends_on_its_seed_and_leaves_torch_alone():
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    assert np.array_equal(initial_theta(MLP_NETWORK, 1), initial_theta(MLP_NETWORK, 1))
    assert not np.array_equal(initial_theta(MLP_NETWORK, 1), initial_theta(MLP_NETWORK, 2))
    assert torch.equal(torch.rand(3), expected)


def test_the_network_follows_the_observations():
    assert describe_network((4,), 2, small_net=False) == MLP_NETWORK
    assert describe_network((1, 42, 42), 6, small_net=False) == CONV_NETWORK
    with pytest.raises(UsageError, match="--small-net"):
        describe_network((1, 42, 42), 6, small_net=True)
