"""Memory as the kernels of `layers` want it: aligned, and weights in the order they are read in."""

from __future__ import annotations

from functools import partial

import numpy as np
import numpy.typing as npt
from numba import float32, int64, void

from es.kernels.compiling import compiler
from es.kernels.layers import PANEL, UNROLL

kernel = compiler(nogil=True)

_floats = float32[::1]


def aligned(size: int) -> npt.NDArray[np.float32]:
    """Zeros, (size,) float32, at the start of a cache line: vector loads do not straddle two."""
    room = np.zeros(size + 15, np.float32)
    start = -room.ctypes.data // 4 % 16
    return room[start : start + size]


def padded(inputs: int) -> int:
    """`inputs` rounded up to a multiple of UNROLL, the length of a dense layer's input array."""
    return -(-inputs // UNROLL) * UNROLL


def whole_panels(outputs: int) -> int:
    """`outputs` rounded up to a multiple of PANEL, the length of a dense layer's output array."""
    return -(-outputs // PANEL) * PANEL


def packed_size(inputs: int, outputs: int) -> int:
    """The size of a packed dense layer."""
    return whole_panels(outputs) * (1 + padded(inputs))


@kernel()
def _pack_rows(weight, inputs, outputs, packed, first, rows, panel):
    for start in range(0, outputs, panel):
        for output in range(start, min(start + panel, outputs)):
            at = start * rows + first * panel + output - start
            for i in range(inputs):
                packed[at + i * panel] = weight[output * inputs + i]


# The panels' width is an argument, since the cache does not see when it changes in its own file.
@kernel(void(int64, int64, _floats, _floats, int64, int64, _floats))
def _pack_dense(panel, unroll, weight, bias, inputs, outputs, packed):
    """Packs weight: (outputs * inputs,), as torch holds it, and bias: (outputs,)."""
    rows = 1 + (inputs + unroll - 1) // unroll * unroll
    _pack_rows(bias, 1, outputs, packed, 0, rows, panel)
    _pack_rows(weight, inputs, outputs, packed, 1, rows, panel)


@kernel(void(int64, _floats, _floats, _floats, _floats, int64, int64, _floats))
def _pack_lstm(panel, weight_ih, weight_hh, bias_ih, bias_hh, inputs, units, packed):
    """Packs an LSTM cell's parameters, as torch holds them, as one dense layer to its gates.

    The layer's inputs are those of the cell and then the hidden state; inputs + units is a multiple
    of UNROLL. The biases add up.
    """
    rows = 1 + inputs + units
    _pack_rows(bias_ih + bias_hh, 1, 4 * units, packed, 0, rows, panel)
    _pack_rows(weight_ih, inputs, 4 * units, packed, 1, rows, panel)
    _pack_rows(weight_hh, units, 4 * units, packed, 1 + inputs, rows, panel)


pack_dense = partial(_pack_dense, PANEL, UNROLL)
pack_lstm = partial(_pack_lstm, PANEL)
