"""The actors against the torch modules, and actions out of outputs."""

import math

import gymnasium
import numpy as np
import pytest
import torch
from torch.nn import functional

from es.algorithm.noise import action_noise
from es.environments.spaces import describe_actions
from es.errors import MisfitError
from es.model import ConvLSTM, initial_theta, make_module, unflatten
from es.networks import kernels, make_actor, outputs_needed
from es.networks.actors import Decoder
from es.networks.kernels import padded
from tests.networks.descriptions import box, convlstm, discrete, mlp

MLP_NETWORK, CONV_NETWORK = mlp(), convlstm()


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
    "convert", [np.float64, np.int64, np.uint8, lambda x: np.repeat(x, 2)[::2], list, read_only]
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
    [5, np.ones(1), np.ones((4, 1)), [1, 2, 3], None, np.ones(4, complex), ["1", "2", "3", "4"]],
)
@pytest.mark.parametrize("before", [np.zeros(4, np.float32), np.zeros(4, int)])
def test_the_mlp_takes_no_observation_of_another_shape_or_kind(misfit, before):
    """NumPy would repeat a single number, and drop imaginary parts; text would be read."""
    actor = make_actor(MLP_NETWORK)
    actor.bind(initial_theta(MLP_NETWORK, 0))
    actor.act(before)
    with pytest.raises(MisfitError, match=r"its observation has the shape .* shape \(4,\)"):
        actor.act(misfit)
    actor.act(before)


def virtually_normalized(module, reference, image):
    """The convolutions with every step written out, on a batch: (N, 1, 42, 42)."""
    for number in range(1, 5):
        conv, norm = getattr(module, f"conv{number}"), getattr(module, f"norm{number}")
        reference, image = (
            functional.conv2d(x, conv.weight, None, 2, 1) for x in (reference, image)
        )
        mean = reference.mean(dim=(0, 2, 3), keepdim=True)
        std = ((reference - mean) ** 2).mean(dim=(0, 2, 3), keepdim=True).add(1e-5).sqrt()
        scale, shift = norm.weight[:, None, None], norm.bias[:, None, None]
        reference, image = (
            functional.selu(scale * (x - mean) / std + shift) for x in (reference, image)
        )
    return image


def test_virtual_batch_normalisation_against_its_formula():
    network = convlstm(vbn=True)
    rng = np.random.default_rng(0)
    reference = rng.normal(size=(20, 1, 42, 42)).astype(np.float32)
    theta = initial_theta(network, 0)
    assert "conv1.bias" not in network["shapes"]
    theta += 0.1 * rng.normal(size=theta.size).astype(np.float32)
    module = make_module(network).requires_grad_(False)
    module.load_state_dict(unflatten(network, theta), strict=False)
    assert isinstance(module, ConvLSTM)
    module.refer_to(torch.from_numpy(reference))
    actor = make_actor(network, reference)
    state = None
    for _ in range(2):
        actor.bind(theta)
        actor.reset()
        state = None
        for _ in range(5):
            image = (1 + 2 * rng.normal(size=(1, 42, 42))).astype(np.float32)
            features = virtually_normalized(
                module, *map(torch.from_numpy, (reference, image[None]))
            )
            hidden, _ = module.lstm(features.flatten(1), state)
            logits, state = module(torch.from_numpy(image), state)
            expected = module.actor_linear(hidden)[0]
            torch.testing.assert_close(logits, expected, rtol=1e-3, atol=1e-4)
            actor.act(image)
            np.testing.assert_allclose(actor.outputs, expected.numpy(), rtol=2e-3, atol=2e-4)
        theta *= np.float32(1.5)  # statistics are those of the parameters that are bound
        module.load_state_dict(unflatten(network, theta), strict=False)
        module.refer_to(torch.from_numpy(reference))


MULTI_DISCRETE = {
    "kind": "multi-discrete", "counts": [2, 3, 1, 4], "start": [0, 5, 0, 0], "shape": [2, 2],
    "dtype": "int32",
}  # fmt: skip
FIVE = box([-1.0, 0.0], [1.0, 10.0], bins=5)


def decode(actions, outputs, noise_seeds=None):
    outputs = np.array(outputs, np.float32)
    assert outputs.size == outputs_needed(actions)
    decoder = Decoder(actions, outputs)
    decoder.reset(None, noise_seeds)
    return decoder.decode(int(outputs.argmax()))


@pytest.mark.parametrize(
    ("actions", "outputs", "expected"),
    [
        (discrete(3), [0.5, 2.0, 1.0], 1),
        (discrete(3, start=-1), [0.5, 2.0, 1.0], 0),
        (MULTI_DISCRETE, [0, 1, 9, 8, 7, -3, 1, 2, 4, 3], [[1, 5], [0, 2]]),
        ({"kind": "multi-binary", "shape": [2, 2]}, [0.1, -0.1, 0.0, 3.0], [[1, 0], [0, 1]]),
        (
            box([-1.0, -2.0, 0.0, -0.5], [1.0, 6.0, 0.5, 0.5], squash="clip"),
            [0.25, -7.0, 0.75, 0.5],
            [0.25, -2.0, 0.5, 0.5],
        ),
        (FIVE, [0, 0, 0, 1, 0, 9, 8, 7, 6, 5], [0.5, 0.0]),
        (FIVE, [3, 0, 0, 1, 0, 5, 6, 7, 8, 9], [-1.0, 10.0]),
    ],
)
def test_actions_of_outputs(actions, outputs, expected):
    action = np.asarray(decode(actions, outputs))
    assert action.tolist() == expected
    assert actions["kind"] == "discrete" or action.dtype == actions.get("dtype", "int8")


def test_continuous_actions_are_tanh_scaled_to_the_bounds():
    low, high = [-1.0, -2.0, 0.0, -0.4], [1.0, 6.0, 0.5, 0.4]
    outputs = np.array([0.3, -0.7, 100.0, -100.0])
    action = decode(box(low, high), outputs)
    expected = np.array(low) + (np.tanh(outputs) + 1) / 2 * (np.array(high) - np.array(low))
    np.testing.assert_allclose(action, expected, rtol=1e-5, atol=1e-6)
    assert (action >= np.array(low, np.float32)).all()
    assert (action <= np.array(high, np.float32)).all()
    shaped = decode(box(low, high, shape=[2, 2], dtype="float64"), outputs)
    assert (shaped.shape, shaped.dtype) == ((2, 2), np.float64)


def test_whole_numbers_are_the_nearest():
    space = gymnasium.spaces.Box(-3, 9, (2, 2), np.int16)
    actions = describe_actions(space, "")
    outputs = [-100.0, 100.0, 0.0, np.arctanh((5.6 - 3) / 6)]
    action = decode(actions, outputs)
    assert (action.tolist(), action.dtype) == ([[-3, 9], [3, 6]], np.int16)
    assert decode(actions, outputs, noise_seeds=(1, 2)) in space
    noisy = decode(actions | {"noise": 50.0}, outputs, noise_seeds=(1, 2))
    assert noisy in space
    assert set(noisy.reshape(-1).tolist()) <= {-3, 9}  # beyond which all of that noise goes
    assert decode(actions | {"bins": 2}, [0, 1, 1, 0, 0, 1, 0, 1]).tolist() == [[9, -3], [9, 9]]


@pytest.mark.parametrize("changes", [{}, {"bins": 3}, {"noise": 1.0}, {"squash": "clip"}])
def test_bounds_that_are_doubles_are_kept(changes):
    """float32(0.1) is above 0.1."""
    space = gymnasium.spaces.Box(np.array([-0.1, -0.3]), np.array([0.1, -0.1]), dtype=np.float64)
    actions = describe_actions(space, "") | changes
    size = outputs_needed(actions)
    for outputs in (np.full(size, 100.0), np.full(size, -100.0), np.arange(size), -np.arange(size)):
        action = decode(actions, outputs, noise_seeds=(1, 2))
        assert space.contains(action)


@pytest.mark.parametrize("bins", [None, 3])
def test_noise_is_that_of_the_tasks_seeds_and_stays_in_bounds(bins):
    actions = box([-1.0, -0.0625], [1.0, 0.0625], noise=0.1, bins=bins)
    low, high = (np.array(actions[name], np.float32) for name in ("low", "high"))
    outputs = np.zeros(outputs_needed(actions), np.float32)
    decoder = Decoder(actions, outputs)
    quiet = decoder.decode(0)
    assert decoder.decode(0).tolist() == quiet.tolist()
    decoder.reset(None, (3, 4))
    noisy = [decoder.decode(0) for _ in range(200)]
    generator = action_noise((3, 4))
    for action in noisy:
        expected = quiet + np.float32(0.1) * generator.standard_normal(2, dtype=np.float32)
        assert action.tolist() == np.clip(expected, low, high).tolist()
    assert max(action[1] for action in noisy) == 0.0625
    decoder.reset(None, (3, 4))
    assert decoder.decode(0).tolist() == noisy[0].tolist()
    decoder.reset(None, (3, 5))
    assert decoder.decode(0).tolist() != noisy[0].tolist()


@pytest.mark.parametrize("multi", [False, True])
def test_drawn_actions_have_the_probabilities_of_the_softmax(multi):
    outputs = np.array([0.5, -1.0, 2.0, 0.0, 0.7], np.float32)
    actions = discrete(5, start=3) | {"sample": True}
    if multi:
        actions = {
            "kind": "multi-discrete", "counts": [3, 2], "start": [0, 4], "shape": [2],
            "dtype": "int64", "sample": True,
        }  # fmt: skip
    decoder = Decoder(actions, outputs)
    decoder.reset(7, None)
    drawn = np.array([decoder.decode(0) for _ in range(20_000)]).reshape(20_000, -1)
    start = 0
    for column, count in enumerate([3, 2] if multi else [5]):
        group = np.exp(outputs[start : start + count])
        first = [0, 4][column] if multi else 3
        found = np.bincount(drawn[:, column] - first, minlength=count) / len(drawn)
        np.testing.assert_allclose(found, group / group.sum(), atol=0.015)
        start += count
    decoder.reset(7, None)
    assert np.array_equal(decoder.decode(0), drawn[0] if multi else drawn[0, 0])


# ---- kernels ----


def normal(*shape):
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("shown", [[], [3], [0, 499], [5, 6, 7, 250], range(100, 130)])
def test_passing_over_zeros_changes_no_result(shown):
    matrix, bias = normal(40, 500), normal(40)
    weights, x = np.zeros((1 + padded(500), 40), np.float32), np.zeros(padded(500), np.float32)
    x[shown] = normal(len(shown))
    y, again = np.empty((2, 40), np.float32)
    kernels.pack(matrix, bias, weights)
    kernels.dense(weights, x, y)
    np.testing.assert_allclose(y, matrix @ x[:500] + bias, rtol=1e-4, atol=1e-4)
    matrix[:, 400:408] = np.inf  # times 0, NaN: not if passed over
    kernels.pack(matrix, bias, weights)
    kernels.dense(weights, x, again)
    assert np.array_equal(y, again)


def test_selu_stays_finite_and_right_at_any_size():
    x = np.array([-1e30, -100, -88, -1, -1e-8, 0, 1e-8, 1, 100, 1e30], np.float32)
    expected = [
        1.0507009873554805 * (v if v > 0 else 1.6732632423543772 * math.expm1(v))
        for v in x.astype(float)
    ]
    kernels.selu(x)
    np.testing.assert_allclose(x, expected, rtol=1e-5, atol=2e-7)
