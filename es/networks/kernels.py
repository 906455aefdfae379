"""Compiled loops that play the networks of `es.model`, one observation at a time.

Arrays are float32. A dense layer's weights are (1 + rows, outputs): the biases, the transposed
matrix, and zeros that pad the inputs to `rows`, a multiple of 8. Images have a border of zeros,
(size + 2, size + 2, channels). Loops are vectorised across outputs, never along a sum, so that
every sum runs in a fixed order.
"""

from functools import partial

import numba
import numpy as np
from numba import float32, float64, int64, void

# "contract" lets a product and a sum be rounded once, together. It reorders nothing.
njit = partial(numba.njit, cache=True, fastmath={"contract"}, error_model="numpy", nogil=True)
inline = partial(njit, inline="always")

ACTIVATIONS = ("selu", "tanh", "relu")  # by their numbers in `mlp`
CHANNELS = 32  # of every convolution's output
UNROLL = 8  # inputs that are taken in one pass over the outputs

_floats, _matrix = float32[::1], float32[:, ::1]
_integers, _statistics = int64[::1], float64[:, ::1]
_ZERO, _HALF, _ONE, _TWO = (np.float32(number) for number in (0, 0.5, 1, 2))
_LOG2E, _LN2_HIGH = np.float32(1.4426950408889634), np.float32(0.693359375)
_LN2_LOW = np.float32(-2.12194440e-4)
_EXP_MIN, _EXP_MAX = np.float32(-87), np.float32(88)
_SELU_SCALE = np.float32(1.0507009873554805)
_SELU_NEGATIVE = np.float32(1.0507009873554805 * 1.6732632423543772)


def padded(inputs: int) -> int:
    """Return the number of inputs, rounded up to a multiple of UNROLL."""
    return -(-inputs // UNROLL) * UNROLL


# Numba's exp is not vectorised without Intel's SVML.
@njit()
def _exp_parts(x):
    """Return s and q of e^x = s * (1 + q): a power of two, and Cephes' polynomial."""
    x = max(min(x, _EXP_MAX), _EXP_MIN)
    n = np.floor(x * _LOG2E + _HALF)
    r = x - n * _LN2_HIGH
    r = r - n * _LN2_LOW
    p = np.float32(1.9875691500e-4)
    p = p * r + np.float32(1.3981999507e-3)
    p = p * r + np.float32(8.3334519073e-3)
    p = p * r + np.float32(4.1665795894e-2)
    p = p * r + np.float32(1.6666665459e-1)
    p = p * r + np.float32(5.0000001201e-1)
    q = p * (r * r) + r
    return np.int32((np.int32(n) + np.int32(127)) << np.int32(23)).view(np.float32), q


@njit()
def _expm1(x):
    """Return e^x - 1, accurate near 0 too."""
    s, q = _exp_parts(x)
    return s * q + (s - _ONE)


@njit()
def _sigmoid(x):
    s, q = _exp_parts(-x)
    return _ONE / (_ONE + (s * q + s))


@njit()
def _tanh(x):
    t = _expm1(-_TWO * x)
    return -t / (t + _TWO)


@njit(void(_floats))
def selu(values):
    """Apply SELU in place. Zeros stay zeros, such as an image's border."""
    for i in range(values.size):
        x = values[i]
        negative = _SELU_NEGATIVE * _expm1(min(x, _ZERO))
        values[i] = _SELU_SCALE * x if x > _ZERO else negative


@inline()
def _activate(values, activation):
    if activation == 0:
        selu(values)
    elif activation == 1:
        for i in range(values.size):
            values[i] = _tanh(values[i])
    else:
        for i in range(values.size):
            values[i] = max(values[i], _ZERO)


@njit(void(_matrix, _floats, _matrix))
def pack(matrix, bias, weights):
    """Fill a layer's weights with bias: (outputs,), and matrix: (outputs, inputs).

    In blocks of outputs, whose rows of the matrix stay in the cache.
    """
    outputs, inputs = matrix.shape
    for start in range(0, outputs, 16):
        end = min(start + 16, outputs)
        for j in range(start, end):
            weights[0, j] = bias[j]
        for i in range(inputs):
            for j in range(start, end):
                weights[1 + i, j] = matrix[j, i]


@njit(void(_matrix, _floats, _floats))
def dense(weights, x, y):
    """Fill y: (outputs,) with the layer's result for x: (rows,), which ends with the padding."""
    outputs = y.size
    for j in range(outputs):
        y[j] = weights[0, j]
    for i in range(0, weights.shape[0] - 1, UNROLL):
        x0, x1, x2, x3 = x[i], x[i + 1], x[i + 2], x[i + 3]
        x4, x5, x6, x7 = x[i + 4], x[i + 5], x[i + 6], x[i + 7]
        if x0 == x1 == x2 == x3 == x4 == x5 == x6 == x7 == _ZERO:
            continue  # as most inputs of a one-hot vector
        w = weights[1 + i : 1 + i + UNROLL]
        for j in range(outputs):
            # Two halves, so that the next pass waits for one addition only.
            left = x0 * w[0, j]
            left += x1 * w[1, j]
            left += x2 * w[2, j]
            left += x3 * w[3, j]
            right = x4 * w[4, j]
            right += x5 * w[5, j]
            right += x6 * w[6, j]
            right += x7 * w[7, j]
            y[j] += left + right


@inline()
def _argmax(values, start, stop):
    best = start
    for i in range(start + 1, stop):
        if values[i] > values[best]:
            best = i
    return best - start


@njit(void(_floats, _integers, _floats))
def pack_mlp(theta, plan, weights):
    """Fill the weights of `mlp` with theta, which holds each layer's matrix and then its biases."""
    for layer in range(1, plan.size - 1):
        inputs, outputs = plan[layer], plan[layer + 1]
        rows = 1 + (inputs + UNROLL - 1) // UNROLL * UNROLL
        size = inputs * outputs
        matrix, bias = theta[:size].reshape(outputs, inputs), theta[size : size + outputs]
        pack(matrix, bias, weights[: rows * outputs].reshape(rows, outputs))
        theta, weights = theta[size + outputs :], weights[rows * outputs :]


@inline()
def _layers(weights, plan, scratch):
    x, last = scratch, plan.size - 2
    for layer in range(1, last + 1):
        outputs = plan[layer + 1]
        rows = 1 + (plan[layer] + UNROLL - 1) // UNROLL * UNROLL
        size = rows * outputs
        y = x[rows - 1 :]
        dense(weights[:size].reshape(rows, outputs), x, y[:outputs])
        if layer < last:
            _activate(y[:outputs], plan[0])
        weights = weights[size:]
        x = y
    return _argmax(x, 0, plan[last + 1])


@njit([int64(_floats, _integers, _floats, kind[::1]) for kind in (float32, float64)])
def mlp(weights, plan, scratch, observation):
    """Run dense layers with activations in between; return the index of the largest output.

    weights: of the layers, end to end. plan: an index of ACTIVATIONS, then the sizes of the
    observation and of each layer's outputs. scratch: the padded observation and outputs, end to
    end, whose padding is zero; it ends with the network's outputs. Raise ValueError if the
    observation has another size.
    """
    if observation.size != plan[1]:
        raise ValueError("the observation does not have the size that the network takes")
    for i in range(observation.size):
        scratch[i] = observation[i]
    return _layers(weights, plan, scratch)


@njit([void(kind[::1], _statistics, float64, _floats) for kind in (float32, float64)])
def normalize(observation, statistics, clip, out):
    """Fill out with (observation - mean) * factor, clipped to +-clip.

    statistics: (4, inputs), the means, the factors, and two sums to which this adds: of the
    deviations from the means, and of their squares.
    """
    for i in range(observation.size):
        deviation = observation[i] - statistics[0, i]
        statistics[2, i] += deviation
        statistics[3, i] += deviation * deviation
        out[i] = min(max(deviation * statistics[1, i], -clip), clip)


@njit(
    [
        int64(_floats, _integers, _floats, _statistics, float64, kind[::1])
        for kind in (float32, float64)
    ]
)
def normalized_mlp(weights, plan, scratch, statistics, clip, observation):
    """Do as `mlp` with the observation as `normalize` makes it."""
    if observation.size != plan[1]:
        raise ValueError("the observation does not have the size that the network takes")
    normalize(observation, statistics, clip, scratch)
    return _layers(weights, plan, scratch)


@njit(void(_matrix, _floats, _floats, _floats))
def lstm_cell(weights, x, cell, gates):
    """Make one step of an LSTM cell.

    weights: a dense layer from x to the input, forget, cell and output gates, (4 * units,). x:
    (inputs + units,), the input and then the hidden state, which the new one replaces; no padding.
    cell: (units,), updated.
    """
    dense(weights, x, gates)
    units = cell.size
    hidden = x[x.size - units :]
    for j in range(units):
        remembered = _sigmoid(gates[units + j]) * cell[j]
        cell[j] = remembered + _sigmoid(gates[j]) * _tanh(gates[2 * units + j])
        hidden[j] = _sigmoid(gates[3 * units + j]) * _tanh(cell[j])


@njit(void(_matrix, _matrix, _floats))
def convolve_gray(weights, x, y):
    """Do as `convolve` with an image of one channel, x: (size + 2, size + 2)."""
    half, w = (x.shape[0] - 1) // 2, weights[1:]
    for row in range(half):
        above, middle, below = x[2 * row], x[2 * row + 1], x[2 * row + 2]
        for column in range(half):
            at = 2 * column
            a0, a1, a2 = above[at], above[at + 1], above[at + 2]
            b0, b1, b2 = middle[at], middle[at + 1], middle[at + 2]
            c0, c1, c2 = below[at], below[at + 1], below[at + 2]
            at = ((row + 1) * (half + 2) + column + 1) * CHANNELS
            sums = y[at : at + CHANNELS]
            for j in range(CHANNELS):
                total = weights[0, j] + a0 * w[0, j]
                total += a1 * w[1, j]
                total += a2 * w[2, j]
                total += b0 * w[3, j]
                total += b1 * w[4, j]
                total += b2 * w[5, j]
                total += c0 * w[6, j]
                total += c1 * w[7, j]
                total += c2 * w[8, j]
                sums[j] = total


@njit(void(_matrix, _floats, int64, _floats))
def convolve(weights, x, size, y):
    """Convolve x: (size + 2, size + 2, 32) into y: (half + 2, half + 2, 32), both with borders.

    Kernels are 3x3 with stride 2, so half = ceil(size / 2). weights: (1 + 3 * 3 * 32, 32), the
    biases, and then a row for each input channel of each pixel under the kernel. The arrays are
    indexed as flat ones, which takes two thirds of the time.
    """
    half, flat = (size + 1) // 2, weights.reshape(-1)
    for row in range(1, half + 1):
        for column in range(1, half + 1):
            at = (row * (half + 2) + column) * CHANNELS
            for j in range(CHANNELS):
                y[at + j] = flat[j]
    # A block of weights stays in the cache while all of the image passes over it.
    for tap in range(0, 9 * CHANNELS, UNROLL):
        w = flat[(1 + tap) * CHANNELS : (1 + tap + UNROLL) * CHANNELS]
        in_row = tap // (3 * CHANNELS)
        for row in range(half):
            start = (2 * row + in_row) * (size + 2) * CHANNELS + tap % (3 * CHANNELS)
            for column in range(half):
                i = start + 2 * column * CHANNELS
                x0, x1, x2, x3 = x[i], x[i + 1], x[i + 2], x[i + 3]
                x4, x5, x6, x7 = x[i + 4], x[i + 5], x[i + 6], x[i + 7]
                at = ((row + 1) * (half + 2) + column + 1) * CHANNELS
                sums = y[at : at + CHANNELS]
                for j in range(CHANNELS):
                    total = sums[j] + x0 * w[j]
                    total += x1 * w[CHANNELS + j]
                    total += x2 * w[2 * CHANNELS + j]
                    total += x3 * w[3 * CHANNELS + j]
                    total += x4 * w[4 * CHANNELS + j]
                    total += x5 * w[5 * CHANNELS + j]
                    total += x6 * w[6 * CHANNELS + j]
                    total += x7 * w[7 * CHANNELS + j]
                    sums[j] = total


@njit(void(_floats, int64, _statistics))
def add_moments(x, size, sums):
    """Add the sums and sums of squares of x's channels to sums: (2, 32), without x's border.

    x: (size + 2, size + 2, 32), flat.
    """
    for row in range(1, size + 1):
        for column in range(1, size + 1):
            at = (row * (size + 2) + column) * CHANNELS
            for j in range(CHANNELS):
                value = float64(x[at + j])
                sums[0, j] += value
                sums[1, j] += value * value


@njit(void(_floats, _floats, _floats, _floats))
def squash(outputs, low, high, actions):
    """Fill actions with tanh(outputs), scaled from [-1, 1] to [low, high]."""
    for i in range(actions.size):
        share = (_tanh(outputs[i]) + _ONE) * _HALF
        # Within the bounds in spite of rounding.
        actions[i] = min(max(low[i] + share * (high[i] - low[i]), low[i]), high[i])


@njit(void(_floats, _floats, _floats, _floats))
def clip(outputs, low, high, actions):
    """Fill actions with the outputs, clipped to [low, high]."""
    for i in range(actions.size):
        actions[i] = min(max(outputs[i], low[i]), high[i])


@njit(void(_floats, _integers, _integers))
def choose(outputs, counts, choices):
    """Fill choices with the index of the largest output in each group. counts: their sizes."""
    start = 0
    for i in range(counts.size):
        choices[i] = _argmax(outputs, start, start + counts[i])
        start += counts[i]
