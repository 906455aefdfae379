"""From outputs to actions."""

import gymnasium
import numpy as np
import pytest

from es.environments.spaces import describe_actions
from es.networks import count_outputs
from es.networks.actions import Box, Sampler, make_decoder
from es.noise import action_noise
from tests.networks.descriptions import box, discrete


def decode(actions, outputs, noise_seeds=None):
    outputs = np.array(outputs, np.float32)
    assert outputs.size == count_outputs(actions)
    decoder = make_decoder(actions, outputs)
    if isinstance(decoder, Box):
        decoder.reset(None, noise_seeds)
    return decoder(int(outputs.argmax()))


def test_discrete_actions_count_from_where_the_space_does():
    assert decode(discrete(3), [0.5, 2.0, 1.0]) == 1
    assert decode(discrete(3, start=-1), [0.5, 2.0, 1.0]) == 0


def test_multi_discrete_actions_are_the_best_of_each_group():
    actions = {
        "kind": "multi-discrete", "counts": [2, 3, 1, 4], "start": [0, 5, 0, 0], "shape": [2, 2],
        "dtype": "int32",
    }  # fmt: skip
    action = decode(actions, [0, 1, 9, 8, 7, -3, 1, 2, 4, 3])
    assert action.tolist() == [[1, 5], [0, 2]]
    assert action.dtype == np.int32


def test_multi_binary_actions_are_the_signs():
    action = decode({"kind": "multi-binary", "shape": [2, 2]}, [0.1, -0.1, 0.0, 3.0])
    assert action.tolist() == [[1, 0], [0, 1]]


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


def test_continuous_actions_can_be_the_outputs_clipped_to_the_bounds():
    low, high = [-1.0, -2.0, 0.0, -0.5], [1.0, 6.0, 0.5, 0.5]
    action = decode(box(low, high, squash="clip"), [0.25, -7.0, 0.75, 0.5])
    assert action.tolist() == [0.25, -2.0, 0.5, 0.5]


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
    size = count_outputs(actions)
    for outputs in (np.full(size, 100.0), np.full(size, -100.0), np.arange(size), -np.arange(size)):
        action = decode(actions, outputs, noise_seeds=(1, 2))
        assert space.contains(action)


def test_bins_are_spread_evenly_over_each_dimension():
    actions = box([-1.0, 0.0], [1.0, 10.0], bins=5)
    assert decode(actions, [0, 0, 0, 1, 0, 9, 8, 7, 6, 5]).tolist() == [0.5, 0.0]
    assert decode(actions, [3, 0, 0, 1, 0, 5, 6, 7, 8, 9]).tolist() == [-1.0, 10.0]


def test_an_action_is_not_written_over_by_the_next():
    outputs = np.zeros(1, np.float32)
    decoder = make_decoder(box([-1.0], [1.0]), outputs)
    first = decoder(0)
    outputs[:] = 1
    assert decoder(0) > first == 0


@pytest.mark.parametrize("bins", [None, 3])
def test_noise_is_that_of_the_tasks_seeds_and_stays_in_bounds(bins):
    actions = box([-1.0, -0.0625], [1.0, 0.0625], noise=0.1, bins=bins)
    low, high = (np.array(actions[name], np.float32) for name in ("low", "high"))
    outputs = np.zeros(count_outputs(actions), np.float32)
    decoder = Box(actions, outputs)
    quiet = decoder(0)
    assert decoder(0).tolist() == quiet.tolist()
    decoder.reset(None, (3, 4))
    noisy = [decoder(0) for _ in range(200)]
    generator = action_noise((3, 4))
    for action in noisy:
        expected = quiet + np.float32(0.1) * generator.standard_normal(2, dtype=np.float32)
        assert action.tolist() == np.clip(expected, low, high).tolist()
    assert max(action[1] for action in noisy) == 0.0625
    decoder.reset(None, (3, 4))
    assert decoder(0).tolist() == noisy[0].tolist()
    decoder.reset(None, (3, 5))
    assert decoder(0).tolist() != noisy[0].tolist()


@pytest.mark.parametrize("multi", [False, True])
def test_drawn_actions_have_the_probabilities_of_the_softmax(multi):
    outputs = np.array([0.5, -1.0, 2.0, 0.0, 0.7], np.float32)
    actions = discrete(5, start=3) | {"sample": True}
    if multi:
        actions = {
            "kind": "multi-discrete", "counts": [3, 2], "start": [0, 4], "shape": [2],
            "dtype": "int64", "sample": True,
        }  # fmt: skip
    decoder = make_decoder(actions, outputs)
    assert isinstance(decoder, Sampler)
    decoder.reset(7, None)
    drawn = np.array([decoder(0) for _ in range(20_000)]).reshape(20_000, -1)
    start = 0
    for column, count in enumerate([3, 2] if multi else [5]):
        group = np.exp(outputs[start : start + count])
        first = [0, 4][column] if multi else 3
        found = np.bincount(drawn[:, column] - first, minlength=count) / len(drawn)
        np.testing.assert_allclose(found, group / group.sum(), atol=0.015)
        start += count
    decoder.reset(7, None)
    assert np.array_equal(decoder(0), drawn[0] if multi else drawn[0, 0])
