"""Aligned memory, and weights in the order in which the kernels of `layers` read them."""

from functools import partial

import numpy as np
import numpy.typing as npt
from numba import float32, int64, void

from es.kernels import layers
from es.kernels.compiling import compile_for

kernel = partial(compile_for, nogil=True)

# As in `layers`: the cache sees changes in a kernel's own file only, so each file states them.
PANEL, UNROLL = 32, 8
assert (PANEL, UNROLL) == (layers.PANEL, layers.UNROLL)

_floats = float32[::1]


def aligned(size: int) -> npt.NDArray[np.float32]:
    """Return zeros: (size,) float32, from the start of a cache line, so that no load needs two."""
    room = np.zeros(size + 15, np.float32)
    start = -room.ctypes.data // 4 % 16
    return room[start : start + size]


def padded(inputs: int) -> int:
    """Return the length of a dense layer's input array: `inputs` rounded up to whole UNROLLs."""
    return -(-inputs // UNROLL) * UNROLL


def whole_panels(outputs: int) -> int:
    """Return the length of a dense layer's output array: `outputs` rounded up to whole PANELs."""
    return -(-outputs // PANEL) * PANEL


def packed_size(inputs: int, outputs: int) -> int:
    """Return the size of a packed dense layer."""
    return whole_panels(outputs) * (1 + padded(inputs))


@kernel()
def _pack_rows(weight, inputs, outputs, packed, first, rows):
    for output in range(outputs):
        at = (output // PANEL * rows + first) * PANEL + output % PANEL
        for i in range(inputs):
            packed[at + i * PANEL] = weight[output * inputs + i]


@kernel(void(_floats, _floats, int64, int64, _floats))
def pack_dense(weight, bias, inputs, outputs, packed):
    """Pack weight: (outputs * inputs,), in torch's order, and bias: (outputs,)."""
    rows = 1 + (inputs + UNROLL - 1) // UNROLL * UNROLL
    _pack_rows(bias, 1, outputs, packed, 0, rows)
    _pack_rows(weight, inputs, outputs, packed, 1, rows)


@kernel(void(_floats, _floats, _floats, _floats, int64, int64, _floats))
def pack_lstm(weight_ih, weight_hh, bias_ih, bias_hh, inputs, units, packed):
    """Pack an LSTM cell's parameters, in torch's order, as one dense layer to its gates.

    The layer's inputs are those of the cell and then the hidden state; inputs + units is a multiple
    of UNROLL. The biases are added.
    """
    rows = 1 + inputs + units
    for gate in range(4 * units):
        at = gate // PANEL * rows * PANEL + gate % PANEL
        packed[at] = bias_ih[gate] + bias_hh[gate]
    _pack_rows(weight_ih, inputs, 4 * units, packed, 1, rows)
    _pack_rows(weight_hh, units, 4 * units, packed, 1 + inputs, rows)
