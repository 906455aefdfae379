from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from es.config import Config
from es.errors import UsageError
from es.model import ConvLSTM, flatten, initial_theta, layer_shapes, make_module, unflatten
from es.networks import make_actor
from es.policy import describe, describe_network
from tests.networks.descriptions import convlstm, discrete, mlp

MLP_NETWORK, CONV_NETWORK = mlp(), convlstm()


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


def assert_same_logits(actor, expected):
    expected = expected.numpy()
    assert np.abs(actor.outputs - expected).max() <= 1e-4 * np.abs(expected).max()


@pytest.mark.parametrize(
    "network",
    [
        MLP_NETWORK,
        mlp(1, 1),
        mlp(376, 130),
        mlp(hidden=[]),
        mlp(hidden=[16], activation="tanh"),
        mlp(3, 40, hidden=[33, 70, 5], activation="relu"),
        CONV_NETWORK,
        convlstm(18),
    ],
)
@pytest.mark.parametrize("scale", [0.1, 1.0, 5.0])
def test_the_actor_computes_what_the_module_does(network, scale):
    """On random parameters, small and large, and after another episode with other ones."""
    rng = np.random.default_rng(0)
    actor, module = make_actor(network), make_module(network).requires_grad_(False)
    shape = (network["inputs"],) if network["kind"] == "mlp" else (1, 42, 42)
    for episode in range(2):
        theta = np.float32(scale) * initial_theta(network, seed=episode)
        module.load_state_dict(unflatten(network, theta))
        actor.bind(theta)
        actor.reset()
        state = None
        for _ in range(30):
            observation = rng.normal(size=shape).astype(np.float32)
            logits, state = module(torch.from_numpy(observation), state)
            assert actor.act(observation) == int(logits.argmax())
            assert_same_logits(actor, logits)


@pytest.mark.parametrize("name", ["CartPole-v1", "PongDeterministic-v4"])
def test_the_actor_keeps_to_the_module_over_a_whole_episode(name):
    setup, theta = describe(Config(env_name=name, seed=1), None)
    network, env = setup.network, setup.recipe.make_env()
    actor, module = make_actor(network), make_module(network).requires_grad_(False)
    module.load_state_dict(unflatten(network, theta))
    actor.bind(theta)
    actor.reset()
    observation, state, over, steps = env.reset(seed=3)[0], None, False, 0
    while not over:
        action = actor.act(observation)
        logits, state = module(torch.from_numpy(observation), state)
        assert_same_logits(actor, logits)
        observation, _, terminated, truncated, _ = env.step(action)
        over = terminated or truncated
        steps += 1
    assert steps > (5 if network["kind"] == "mlp" else 700)


@pytest.mark.parametrize("network", [MLP_NETWORK, CONV_NETWORK])
@pytest.mark.parametrize("scale", [0.1, 0.01])
def test_small_activations_keep_their_digits(network, scale):
    """Without biases, which would hide the loss of digits near 0."""
    parameters = unflatten(network, initial_theta(network, 0))
    for name in parameters:
        parameters[name] *= 0 if "bias" in name else scale
    actor, module = make_actor(network), make_module(network).requires_grad_(False)
    module.load_state_dict(parameters)
    actor.bind(flatten(network, parameters))
    actor.reset()
    shape, state = (4,) if network["kind"] == "mlp" else (1, 42, 42), None
    for seed in range(5):
        observation = np.random.default_rng(seed).normal(size=shape).astype(np.float32)
        logits, state = module(torch.from_numpy(observation), state)
        actor.act(observation)
        assert_same_logits(actor, logits)


def test_an_observation_of_another_size_is_an_error():
    actor = make_actor(MLP_NETWORK)
    for size in (3, 5):
        with pytest.raises(ValueError, match="should hold 4 numbers"):
            actor.act(np.zeros(size, np.float32))
    with pytest.raises(ValueError, match="size"):
        make_actor(CONV_NETWORK).act(np.zeros((1, 10, 10), np.float32))


def test_reset_forgets_the_episode_before():
    actor = make_actor(CONV_NETWORK)
    actor.bind(initial_theta(CONV_NETWORK, 0))
    image = np.random.default_rng(0).normal(size=(1, 42, 42)).astype(np.float32)

    def play() -> list[list[float]]:
        actor.reset()
        logits = []
        for _ in range(2):
            actor.act(image)
            logits.append(actor.outputs.tolist())
        return logits

    first = play()
    assert first[0] != first[1]
    assert play() == first


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


@pytest.mark.parametrize("wrong", [torch.tensor(torch.nan), torch.tensor(1e200).double(), 7])
def test_flatten_refuses_what_single_precision_cannot_hold(wrong):
    layers = unflatten(MLP_NETWORK, initial_theta(MLP_NETWORK, 1))
    layers["linear1.bias"] = torch.full((64,), wrong, dtype=torch.as_tensor(wrong).dtype)
    with pytest.raises(ValueError, match=r"linear1\.bias holds"):
        flatten(MLP_NETWORK, layers)


def test_initialisation_depends_on_its_seed_and_leaves_torch_alone():
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    assert np.array_equal(initial_theta(MLP_NETWORK, 1), initial_theta(MLP_NETWORK, 1))
    assert not np.array_equal(initial_theta(MLP_NETWORK, 1), initial_theta(MLP_NETWORK, 2))
    assert torch.equal(torch.rand(3), expected)


def test_the_network_follows_the_observations():
    config = Config(env_name="Some-v0")
    assert describe_network(config, (4,), discrete(2)) == MLP_NETWORK
    assert describe_network(config, (1, 42, 42), discrete(6)) == CONV_NETWORK


@pytest.mark.parametrize(
    ("shape", "settings", "words"),
    [
        ((1, 42, 42), {"small_net": True}, "--small-net"),
        ((1, 42, 42), {"obs_norm": True}, "--obs-norm: is for the MLP"),
        ((1, 42, 42), {"hidden_sizes": (64,)}, "--hidden-sizes 64: is for the MLP"),
        ((1, 42, 42), {"activation": "tanh"}, "--activation tanh: is for the MLP"),
        ((4,), {"vbn": True}, "--vbn: is for the Convnet-LSTM"),
    ],
)
def test_settings_of_the_other_network_are_errors(shape, settings, words):
    with pytest.raises(UsageError, match=words):
        describe_network(Config(env_name="Some-v0", **settings), shape, discrete(2))
