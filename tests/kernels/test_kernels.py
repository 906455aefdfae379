import math

import numpy as np
import pytest
import torch
from torch.nn import functional

from es.kernels import convolutions, images, layers, packing
from es.kernels.convolutions import CHANNELS
from es.kernels.packing import aligned, packed_size, padded, whole_panels

RNG = np.random.default_rng(0)


def normal(*shape):
    return RNG.normal(size=shape).astype(np.float32)


@pytest.mark.parametrize(("inputs", "outputs"), [(1, 1), (4, 64), (64, 2), (65, 130), (288, 6)])
def test_dense_against_a_matrix_product(inputs, outputs):
    weight, bias, x = normal(outputs, inputs), normal(outputs), normal(inputs)
    packed, y = aligned(packed_size(inputs, outputs)), aligned(whole_panels(outputs))
    given = aligned(padded(inputs))
    given[:inputs] = x
    packing.pack_dense(weight.reshape(-1), bias, inputs, outputs, packed)
    layers.dense(packed, given, inputs, outputs, y)
    expected = weight.astype(np.float64) @ x + bias
    np.testing.assert_allclose(y[:outputs], expected, rtol=1e-4, atol=1e-4)
    assert layers.dense_argmax(packed, given, inputs, outputs, y) == expected.argmax()


@pytest.mark.parametrize("shown", [[], [3], [0, 499], [5, 6, 7, 250], range(100, 130)])
def test_passing_over_zeros_changes_no_bit(shown):
    inputs, outputs = 500, 40
    weight, bias, x = normal(outputs, inputs), normal(outputs), aligned(padded(inputs))
    bias[:2] = 0.0, -0.0
    x[shown] = normal(len(shown))
    packed, y, without_zeros = (
        aligned(size) for size in (packed_size(inputs, outputs), *2 * [whole_panels(outputs)])
    )
    packing.pack_dense(weight.reshape(-1), bias, inputs, outputs, packed)
    layers.dense(packed, x, inputs, outputs, y)
    # Far below the last digits of the sums, but not 0.
    layers.dense(packed, np.where(x == 0, np.float32(1e-45), x), inputs, outputs, without_zeros)
    start = 0 if shown else 2  # where there is a sum with digits
    assert np.array_equal(y[start:], without_zeros[start:])
    weight[:, 400:408] = np.inf  # times 0, NaN: not if passed over
    packing.pack_dense(weight.reshape(-1), bias, inputs, outputs, packed)
    layers.dense(packed, x, inputs, outputs, without_zeros)
    assert np.array_equal(y, without_zeros)


def frame(image):
    """(channels, size, size) -> (size + 2, size + 2, channels), zeros around it, flat."""
    return np.pad(image.transpose(1, 2, 0), ((1, 1), (1, 1), (0, 0))).reshape(-1)


@pytest.mark.parametrize("size", [42, 21, 11, 6, 3, 1])
@pytest.mark.parametrize("inputs", [1, CHANNELS])
def test_convolution_against_torch(size, inputs):
    image, weight, bias = normal(inputs, size, size), normal(CHANNELS, inputs, 3, 3), normal(32)
    half = (size + 1) // 2
    packed, y = aligned((1 + 9 * inputs) * CHANNELS), aligned((half + 2) ** 2 * CHANNELS)
    convolutions.pack_convolution(weight.reshape(-1), bias, inputs, packed)
    if inputs == 1:
        framed = aligned((size + 2) ** 2)
        convolutions.convolve_image(packed, image.reshape(-1), size, framed, y)
    else:
        convolutions.convolve(packed, frame(image), size, y)
    layers.selu(y)
    x, w, b = (torch.from_numpy(array).double() for array in (image[None], weight, bias))
    expected = functional.selu(functional.conv2d(x, w, b, stride=2, padding=1))[0].numpy()
    np.testing.assert_allclose(y, frame(expected), rtol=1e-4, atol=1e-4)
    first = np.empty(half * half * CHANNELS, np.float32)
    convolutions.channels_first(y, half, first)
    np.testing.assert_allclose(first, expected.reshape(-1), rtol=1e-4, atol=1e-4)


def test_lstm_cell_against_torch():
    inputs, units = 24, 64
    cell = torch.nn.LSTMCell(inputs, units).double()
    parameters = [
        values.detach().float().numpy().reshape(-1)
        for values in (cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh)
    ]
    packed = aligned(packed_size(inputs + units, 4 * units))
    packing.pack_lstm(*parameters, inputs, units, packed)
    x, state, gates = aligned(inputs + units), aligned(units), aligned(4 * units)
    expected = None
    for _ in range(5):
        given = 3 * normal(inputs)
        x[:inputs] = given
        layers.lstm_cell(packed, x, units, state, gates)
        expected = cell(torch.from_numpy(given).double()[None], expected)
        for ours, theirs in ((x[inputs:], expected[0]), (state, expected[1])):
            np.testing.assert_allclose(ours, theirs.detach().numpy()[0], rtol=1e-4, atol=1e-6)


def test_activations_stay_finite_and_right_at_any_size():
    x = np.array([-1e30, -100, -88, -1, -1e-8, 0, 1e-8, 1, 100, 1e30], np.float32)
    expected = [
        1.0507009873554805 * (v if v > 0 else 1.6732632423543772 * math.expm1(v))
        for v in x.astype(float)
    ]
    plan = np.array([0, 1, 10, 1])
    scratch = aligned(sum(whole_panels(width) for width in plan[1:]))
    packed = aligned(packed_size(1, 10) + packed_size(10, 1))
    packing.pack_dense(x, np.zeros(10, np.float32), 1, 10, packed)
    layers.mlp(packed, plan, scratch, np.ones(1, np.float32))
    hidden = scratch[whole_panels(1) :][:10]
    np.testing.assert_allclose(hidden, expected, rtol=1e-5, atol=2e-7)


def test_shrinking_a_screen_that_changes_here_and_there():
    rng = np.random.default_rng(1)
    first = np.array([0, 2, 4], np.int64)
    taps = rng.random(12, dtype=np.float32)
    table = rng.random(256, dtype=np.float32)
    screen = rng.integers(0, 255, (8, 8), dtype=np.uint8)
    seen = ~screen
    rows, image = np.empty(24, np.float32), np.empty(9, np.float32)
    for step in range(20):
        assert images.shrink(screen, seen, table, first, taps, rows, image)
        matrix = np.zeros((3, 8))
        for i in range(3):
            matrix[i, first[i] : first[i] + 4] = taps[4 * i : 4 * i + 4]
        expected = matrix @ table[screen].astype(np.float64) @ matrix.T
        np.testing.assert_allclose(image.reshape(3, 3), expected, rtol=1e-5)
        screen[step % 8, rng.integers(8)] = rng.integers(0, 255)
    table[255] = -1e6
    screen[3, 3] = 255
    assert not images.shrink(screen, seen, table, first, taps, rows, image)
