"""The MLP and its actor."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from es.errors import MisfitError
from es.model import MLP, initial_theta, make_module, unflatten
from es.networks import make_actor
from tests.networks.descriptions import mlp

MLP_NETWORK = mlp()


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


@pytest.mark.parametrize("activation", ["selu", "tanh", "relu"])
def test_mlp_of_other_layers_against_its_formula(activation):
    module = make_module(mlp(3, 5, hidden=[7], activation=activation))
    assert isinstance(module, MLP)
    p = dict(module.named_parameters())
    assert list(p) == ["linear1.weight", "linear1.bias", "actor_linear.weight", "actor_linear.bias"]
    x = torch.tensor([0.5, -1.0, 2.0])
    hidden = getattr(functional, activation)(p["linear1.weight"] @ x + p["linear1.bias"])
    expected = p["actor_linear.weight"] @ hidden + p["actor_linear.bias"]
    torch.testing.assert_close(module(x)[0], expected)


@pytest.mark.parametrize("hidden", [[7], [13, 30]])
def test_an_infinite_input_saturates_tanh_as_in_torch(hidden):
    """Widths that are no multiples of 8 are padded; the padding must not become NaN."""
    network = mlp(3, 5, hidden=hidden, activation="tanh")
    theta = initial_theta(network, 0)
    actor, module = make_actor(network), make_module(network)
    actor.bind(theta)
    observation = np.array([np.inf, 0.3, 1.0], np.float32)
    actor.act(observation)
    module.load_state_dict(unflatten(network, theta))
    expected = module(torch.from_numpy(observation))[0].detach().numpy()
    assert np.isfinite(expected).all()
    np.testing.assert_allclose(actor.outputs, expected, rtol=1e-5)


def test_a_linear_policy_is_one_matrix():
    network = mlp(3, 2, hidden=[])
    theta = np.array([1, 2, 3, 4, 5, 6, 0.5, -0.5], np.float32)
    actor = make_actor(network)
    actor.bind(theta)
    actor.act(np.array([1, 0, -1], np.float32))
    assert actor.outputs.tolist() == [-1.5, -2.5]


@pytest.mark.parametrize("clip", [5.0, 0.5, 0])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_observations_are_normalised_clipped_and_summed(kind, clip):
    network = mlp(3, 4, activation="tanh", obs_clip=clip)
    most = clip or np.inf
    actor, plain = make_actor(network | {"normalize": True}), make_actor(network)
    theta = initial_theta(network, 0)
    statistics = np.array([[1.0, -2.0, 100.0], [0.5, 3.0, 1e4]])
    actor.bind(theta, statistics)
    plain.bind(theta)
    rng = np.random.default_rng(0)
    for _ in range(2):  # the second time to see that a reset forgets the sums
        seen = (100 * rng.normal(size=(20, 3))).astype(kind)
        actor.reset()
        for observation in seen:
            actor.act(observation)
            normalized = (observation - statistics[0]) * statistics[1]
            plain.act(np.clip(normalized, -most, most).astype(np.float32))
            np.testing.assert_allclose(actor.outputs, plain.outputs, rtol=1e-5, atol=1e-6)
        deviations = seen.astype(np.float64) - statistics[0]
        observed = actor.observed()
        assert observed is not None
        np.testing.assert_allclose(observed[0], deviations.sum(axis=0), rtol=1e-9)
        np.testing.assert_allclose(observed[1], (deviations**2).sum(axis=0), rtol=1e-9)
    assert plain.observed() is None


def read_only(x):
    return np.frombuffer(x.astype(np.float64).tobytes())


@pytest.mark.parametrize(
    "convert",
    [np.float64, np.int64, np.uint8, lambda x: np.repeat(x, 2)[::2], list, read_only],
)
def test_the_mlp_takes_observations_of_any_type(convert):
    actor, expected = make_actor(MLP_NETWORK), make_actor(MLP_NETWORK)
    observation = np.array([1, 2, 0, 5], np.float32)
    for each in (actor, expected):
        each.bind(initial_theta(MLP_NETWORK, 0))
        each.reset()
    assert actor.act(convert(observation)) == expected.act(observation)
    assert np.array_equal(actor.outputs, expected.outputs)


@pytest.mark.parametrize(
    "misfit",
    [5, np.ones(1), np.ones(1, np.float32), np.ones((4, 1)), np.ones(5), [1, 2, 3], None,
     np.ones(4, complex), ["1", "2", "3", "4"], [[1], [2, 3], 4, 5], {"x": 1}],
)  # fmt: skip
@pytest.mark.parametrize("before", [np.zeros(4, np.float32), np.zeros(4, int)])
def test_the_mlp_takes_no_observation_of_another_shape_or_kind(misfit, before):
    """NumPy would repeat a single number, and drop imaginary parts; text would be read."""
    actor = make_actor(MLP_NETWORK)
    actor.bind(initial_theta(MLP_NETWORK, 0))
    actor.reset()
    actor.act(before)
    with pytest.raises(MisfitError, match=r"its observation has the shape .* 4 numbers"):
        actor.act(misfit)
    actor.act(before)
