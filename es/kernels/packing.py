"""Memory as the kernels of `layers` want it: aligned, and weights in the order they are read in."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import float32, int64, void

from es.kernels import layers
from es.kernels.compiling import compiler

kernel = compiler(nogil=True)

# As in `layers`. The cache sees changes in a kernel's own file only, so that each says them.
PANEL, UNROLL = 32, 8
assert (PANEL, UNROLL) == (layers.PANEL, layers.UNROLL)

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
def _pack_rows(weight, inputs, outputs, packed, first, rows):
    for output in range(outputs):
        at = (output // PANEL * rows + first) * PANEL + output % PANEL
        for i in range(inputs):
            packed[at + i * PANEL] = weight[output * inputs + i]


@kernel(void(_floats, _floats, int64, int64, _floats))
def pack_dense(weight, bias, inputs, outputs, packed):
    """Packs weight: (outputs * inputs,), as torch holds it, and bias: (outputs,)."""
    rows = 1 + (inputs + UNROLL - 1) // UNROLL * UNROLL
    _pack_rows(bias, 1, outputs, packed, 0, rows)
    _pack_rows(weight, inputs, outputs, packed, 1, rows)


@kernel(void(_floats, _floats, _floats, _floats, int64, int64, _floats))
def pack_lstm(weight_ih, weight_hh, bias_ih, bias_hh, inputs, units, packed):
    """Packs an LSTM cell's parameters, as torch holds them, as one dense layer to its gates.

    The layer's inputs are those of the cell and then the hidden state; inputs + units is a multiple
    of UNROLL. The biases add up.
    """
    rows = 1 + inputs + units
    for gate in range(4 * units):
        at = gate // PANEL * rows * PANEL + gate % PANEL
        packed[at] = bias_ih[gate] + bias_hh[gate]
    _pack_rows(weight_ih, inputs, 4 * units, packed, 1, rows)
    _pack_rows(weight_hh, units, 4 * units, packed, 1 + inputs, rows)
