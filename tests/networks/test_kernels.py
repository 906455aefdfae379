"""The kernels against torch and NumPy."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional

from es.networks import kernels
from es.networks.kernels import CHANNELS, padded

RNG = np.random.default_rng(0)


def normal(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def packed(matrix, bias):
    weights = np.zeros((1 + padded(matrix.shape[1]), len(matrix)), np.float32)
    kernels.pack(matrix, bias, weights)
    return weights


@pytest.mark.parametrize(("inputs", "outputs"), [(1, 1), (4, 64), (64, 2), (65, 130), (288, 6)])
def test_dense_against_a_matrix_product(inputs, outputs):
    matrix, bias, x = normal(outputs, inputs), normal(outputs), np.zeros(padded(inputs), np.float32)
    x[:inputs] = normal(inputs)
    y = np.empty(outputs, np.float32)
    expected = matrix.astype(np.float64) @ x[:inputs] + bias
    assert kernels.dense_argmax(packed(matrix, bias), x, y) == expected.argmax()
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shown", [[], [3], [0, 499], [5, 6, 7, 250], range(100, 130)])
def test_passing_over_zeros_changes_no_result(shown):
    matrix, bias, x = normal(40, 500), normal(40), np.zeros(padded(500), np.float32)
    x[shown] = normal(len(shown))
    y, again = np.empty((2, 40), np.float32)
    kernels.dense(packed(matrix, bias), x, y)
    np.testing.assert_allclose(y, matrix @ x[:500] + bias, rtol=1e-4, atol=1e-4)
    matrix[:, 400:408] = np.inf  # times 0, NaN: not if passed over
    kernels.dense(packed(matrix, bias), x, again)
    assert np.array_equal(y, again)


def frame(image):
    """(channels, size, size) -> (size + 2, size + 2, channels), zeros around it, flat."""
    return np.pad(image.transpose(1, 2, 0), ((1, 1), (1, 1), (0, 0))).reshape(-1)


@pytest.mark.parametrize("size", [42, 21, 11, 6, 3, 1])
@pytest.mark.parametrize("inputs", [1, CHANNELS])
def test_convolution_against_torch(size, inputs):
    image, weight, bias = normal(inputs, size, size), normal(CHANNELS, inputs, 3, 3), normal(32)
    y = np.zeros(((size + 1) // 2 + 2) ** 2 * CHANNELS, np.float32)
    weights = np.zeros((1 + 9 * inputs, CHANNELS), np.float32)
    kernels.pack(weight.transpose(0, 2, 3, 1).reshape(CHANNELS, -1), bias, weights)
    if inputs == 1:
        kernels.convolve_gray(weights, np.pad(image[0], 1), y)
    else:
        kernels.convolve(weights, frame(image), size, y)
    kernels.selu(y)
    x, w, b = (torch.from_numpy(array).double() for array in (image[None], weight, bias))
    expected = functional.selu(functional.conv2d(x, w, b, stride=2, padding=1))[0].numpy()
    np.testing.assert_allclose(y, frame(expected), rtol=1e-4, atol=1e-4)


def test_lstm_cell_against_torch():
    inputs, units = 24, 64
    cell = torch.nn.LSTMCell(inputs, units).double()
    matrix = torch.hstack([cell.weight_ih, cell.weight_hh]).detach().float().numpy()
    weights = packed(matrix, (cell.bias_ih + cell.bias_hh).detach().float().numpy())
    x, state, gates = (np.zeros(size, np.float32) for size in (inputs + units, units, 4 * units))
    expected = None
    for _ in range(5):
        x[:inputs] = seen = 3 * normal(inputs)
        kernels.lstm_cell(weights, x, state, gates)
        expected = cell(torch.from_numpy(seen).double()[None], expected)
        for ours, theirs in ((x[inputs:], expected[0]), (state, expected[1])):
            np.testing.assert_allclose(ours, theirs.detach().numpy()[0], rtol=1e-4, atol=1e-6)


def test_selu_stays_finite_and_right_at_any_size():
    x = np.array([-1e30, -100, -88, -1, -1e-8, 0, 1e-8, 1, 100, 1e30], np.float32)
    expected = [
        1.0507009873554805 * (v if v > 0 else 1.6732632423543772 * math.expm1(v))
        for v in x.astype(float)
    ]
    kernels.selu(x)
    np.testing.assert_allclose(x, expected, rtol=1e-5, atol=2e-7)
