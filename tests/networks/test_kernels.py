"""Kernels where the actors' tests do not reach."""

import math

import numpy as np
import pytest

from es.networks import kernels
from es.networks.kernels import padded

RNG = np.random.default_rng(0)


def normal(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def packed(matrix, bias):
    weights = np.zeros((1 + padded(matrix.shape[1]), len(matrix)), np.float32)
    kernels.pack(matrix, bias, weights)
    return weights


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


def test_selu_stays_finite_and_right_at_any_size():
    x = np.array([-1e30, -100, -88, -1, -1e-8, 0, 1e-8, 1, 100, 1e30], np.float32)
    expected = [
        1.0507009873554805 * (v if v > 0 else 1.6732632423543772 * math.expm1(v))
        for v in x.astype(float)
    ]
    kernels.selu(x)
    np.testing.assert_allclose(x, expected, rtol=1e-5, atol=2e-7)
