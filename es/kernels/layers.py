"""Layers: dense, LSTM cell, activations; choosing actions. Arrays are (size,) float32.

A dense layer's weights are packed so that its loops read memory in sequence: panels of 32 outputs,
each with a row of biases and then a row for each input; zeros pad the inputs to a multiple of 8.
"""

from functools import partial

import numpy as np
from numba import float32, float64, int64, void

from es.kernels.compiling import compile_for

# "contract" rounds a product and the sum it goes into once, and reorders nothing.
kernel = partial(compile_for, fastmath={"contract"}, error_model="numpy", nogil=True)

PANEL = 32  # outputs side by side: enough independent sums to hide the latency of each
UNROLL = 8  # inputs taken in one pass over a panel

ACTIVATIONS = ("selu", "tanh", "relu")  # by their numbers in the kernels

_floats, _doubles, _integers = float32[::1], float64[::1], int64[::1]
_ZERO, _HALF, _ONE, _TWO = (np.float32(number) for number in (0, 0.5, 1, 2))
_LOG2E, _LN2_HIGH = np.float32(1.4426950408889634), np.float32(0.693359375)
_LN2_LOW = np.float32(-2.12194440e-4)
_EXP_MIN, _EXP_MAX = np.float32(-87), np.float32(88)
_SELU_SCALE = np.float32(1.0507009873554805)
_SELU_NEGATIVE = np.float32(1.0507009873554805 * 1.6732632423543772)


@kernel()
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


@kernel()
def _expm1(x):
    """Return e^x - 1, to a few units in the last place near 0 too."""
    s, q = _exp_parts(x)
    return s * q + (s - _ONE)


@kernel()
def _sigmoid(x):
    s, q = _exp_parts(-x)
    return _ONE / (_ONE + (s * q + s))


@kernel()
def _tanh(x):
    t = _expm1(-_TWO * x)
    return -t / (t + _TWO)


@kernel(void(_floats))
def selu(values):
    """Apply SELU in place; zeros stay zeros, such as the frame around an image."""
    for i in range(values.size):
        x = values[i]
        negative = _SELU_NEGATIVE * _expm1(min(x, _ZERO))
        values[i] = _SELU_SCALE * x if x > _ZERO else negative


@kernel(inline="always")
def _activate(values, activation):
    if activation == 0:
        selu(values)
    elif activation == 1:
        for i in range(values.size):
            values[i] = _tanh(values[i])
    else:
        for i in range(values.size):
            values[i] = max(values[i], _ZERO)


@kernel(void(_floats, _floats, int64, int64, _floats))
def dense(packed, x, inputs, outputs, y):
    """Fill y: (whole_panels(outputs),) with weight @ x + bias. x: (padded(inputs),)."""
    rows = 1 + (inputs + UNROLL - 1) // UNROLL * UNROLL
    for panel in range((outputs + PANEL - 1) // PANEL):
        sums = y[panel * PANEL : (panel + 1) * PANEL]
        weights = packed[panel * rows * PANEL : (panel + 1) * rows * PANEL]
        for j in range(PANEL):
            sums[j] = weights[j]
        for i in range(0, rows - 1, UNROLL):
            w = weights[(1 + i) * PANEL : (1 + i + UNROLL) * PANEL]
            x0, x1, x2, x3 = x[i], x[i + 1], x[i + 2], x[i + 3]
            x4, x5, x6, x7 = x[i + 4], x[i + 5], x[i + 6], x[i + 7]
            if x0 == x1 == x2 == x3 == x4 == x5 == x6 == x7 == _ZERO:
                continue  # of a one-hot vector, most are; they would change no sum
            for j in range(PANEL):
                # In two halves, so that the next pass waits for one addition only.
                left = x0 * w[j]
                left += x1 * w[PANEL + j]
                left += x2 * w[2 * PANEL + j]
                left += x3 * w[3 * PANEL + j]
                right = x4 * w[4 * PANEL + j]
                right += x5 * w[5 * PANEL + j]
                right += x6 * w[6 * PANEL + j]
                right += x7 * w[7 * PANEL + j]
                sums[j] += left + right


@kernel(inline="always")
def _largest(values, start, stop):
    best = start
    for i in range(start + 1, stop):
        if values[i] > values[best]:
            best = i
    return best - start


@kernel(inline="always")
def _layers(packed, plan, scratch):
    weights, x = packed, scratch
    last = plan.size - 2
    for layer in range(1, last + 1):
        inputs, outputs = plan[layer], plan[layer + 1]
        rows = 1 + (inputs + UNROLL - 1) // UNROLL * UNROLL
        y = x[(inputs + PANEL - 1) // PANEL * PANEL :]
        x[inputs : rows - 1] = _ZERO  # infinite numbers before, times 0, have made it NaN
        dense(weights, x, inputs, outputs, y)
        if layer < last:
            _activate(y[:outputs], plan[0])
        weights = weights[(outputs + PANEL - 1) // PANEL * rows * PANEL :]
        x = y
    return _largest(x, 0, plan[last + 1])


_MLP = (_floats, _integers, _floats)


@kernel(*[int64(*_MLP, kind[::1]) for kind in (float32, float64)])
def mlp(packed, plan, scratch, observation):
    """Run dense layers with activations in between; return the index of the largest output.

    packed: the layers' packed weights end to end. plan: an index of ACTIVATIONS, and the widths of
    the observation and of each layer's outputs. scratch: room for the observation and for each
    layer's outputs, each rounded up to whole panels; it ends with the outputs. Raise ValueError if
    the observation has another size.
    """
    if observation.size != plan[1]:
        raise ValueError("the observation is not of the size that the network takes")
    for i in range(observation.size):
        scratch[i] = observation[i]
    return _layers(packed, plan, scratch)


@kernel(*[int64(*_MLP, _doubles, float64, kind[::1]) for kind in (float32, float64)])
def normalized_mlp(packed, plan, scratch, statistics, clip, observation):
    """Do as `mlp` with the observation normalised by means and factors, and clipped to +-clip.

    statistics: (4 * inputs,), the means, the factors, and two sums to which this adds: of the
    deviations from the means, and of their squares.
    """
    inputs = plan[1]
    if observation.size != inputs:
        raise ValueError("the observation is not of the size that the network takes")
    means, factors = statistics[:inputs], statistics[inputs : 2 * inputs]
    sums, squares = statistics[2 * inputs : 3 * inputs], statistics[3 * inputs :]
    for i in range(inputs):
        deviation = observation[i] - means[i]
        sums[i] += deviation
        squares[i] += deviation * deviation
        scratch[i] = min(max(deviation * factors[i], -clip), clip)
    return _layers(packed, plan, scratch)


@kernel(void(_floats, _floats, _floats, _floats))
def squash(outputs, low, high, actions):
    """Fill actions with tanh(outputs), scaled from [-1, 1] to [low, high]."""
    for i in range(actions.size):
        share = (_tanh(outputs[i]) + _ONE) * _HALF
        # Within the bounds in spite of rounding.
        actions[i] = min(max(low[i] + share * (high[i] - low[i]), low[i]), high[i])


@kernel(void(_floats, _floats, _floats, _floats))
def clip(outputs, low, high, actions):
    """Fill actions with the outputs, clipped to [low, high]."""
    for i in range(actions.size):
        actions[i] = min(max(outputs[i], low[i]), high[i])


@kernel(void(_floats, _integers, _integers))
def choose(outputs, counts, choices):
    """Fill choices with the index of the largest output in each group. counts: their sizes."""
    start = 0
    for i in range(counts.size):
        choices[i] = _largest(outputs, start, start + counts[i])
        start += counts[i]


@kernel(void(_floats, _floats, int64, _floats, _floats))
def lstm_cell(packed, x, units, cell, gates):
    """Make one step of an LSTM cell. x: (inputs + units,), the input and then the hidden state.

    packed: a dense layer from x to the input, forget, cell and output gates: whole_panels(4 *
    units). The new hidden state replaces the old one at the end of x, whose size is a multiple of
    UNROLL; cell: (units,) is updated.
    """
    dense(packed, x, x.size, 4 * units, gates)
    hidden = x[x.size - units :]
    for j in range(units):
        kept = _sigmoid(gates[units + j]) * cell[j]
        cell[j] = kept + _sigmoid(gates[j]) * _tanh(gates[2 * units + j])
        hidden[j] = _sigmoid(gates[3 * units + j]) * _tanh(cell[j])


@kernel(int64(_floats, _floats, int64, int64, _floats))
def dense_argmax(packed, x, inputs, outputs, y):
    """Do as `dense`; return the index of the largest output."""
    dense(packed, x, inputs, outputs, y)
    return _largest(y, 0, outputs)
