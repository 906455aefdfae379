"""Convolutions: 3x3, stride 2, padding 1, to 32 channels. Arrays are (size,) float32, C-ordered.

An image is (height, width, channels), with a frame of zeros around it. Its activation is a separate
step over the whole image.
"""

from functools import partial

import numpy as np
from numba import float32, float64, int64, void

from es.kernels.compiling import compile_for

# "contract" rounds a product and the sum it goes into once, and reorders nothing.
kernel = partial(compile_for, fastmath={"contract"}, error_model="numpy", nogil=True)

UNROLL = 8  # inputs taken in one pass over the image
CHANNELS = 32  # of every convolution's output

_floats, _doubles = float32[::1], float64[::1]


@kernel(void(_floats, _floats, int64, _floats))
def pack_convolution(weight, bias, inputs, packed):
    """Pack weight: (32 * inputs * 3 * 3,), in torch's order, and bias: (32,)."""
    for output in range(CHANNELS):
        packed[output] = bias[output]
        for i in range(inputs):
            for tap in range(9):
                at = (1 + tap * inputs + i) * CHANNELS + output
                packed[at] = weight[(output * inputs + i) * 9 + tap]


@kernel(void(_floats, _floats, int64, _floats, _floats))
def convolve_image(packed, image, size, framed, y):
    """Convolve an image of one channel: (size, size).

    framed: (size + 2, size + 2), zeros around room for the image. y: (half + 2, half + 2, 32),
    where half = ceil(size / 2), zeros around the result. Raise ValueError for another size.
    """
    if image.size != size * size:
        raise ValueError("the image is not of the size that the network takes")
    for row in range(size):
        for column in range(size):
            framed[(row + 1) * (size + 2) + column + 1] = image[row * size + column]
    half, w = (size + 1) // 2, packed[CHANNELS:]
    for row in range(half):
        for column in range(half):
            at = 2 * row * (size + 2) + 2 * column
            a0, a1, a2 = framed[at], framed[at + 1], framed[at + 2]
            at += size + 2
            b0, b1, b2 = framed[at], framed[at + 1], framed[at + 2]
            at += size + 2
            c0, c1, c2 = framed[at], framed[at + 1], framed[at + 2]
            at = ((row + 1) * (half + 2) + column + 1) * CHANNELS
            sums = y[at : at + CHANNELS]
            for j in range(CHANNELS):
                total = packed[j] + a0 * w[j]
                total += a1 * w[CHANNELS + j]
                total += a2 * w[2 * CHANNELS + j]
                total += b0 * w[3 * CHANNELS + j]
                total += b1 * w[4 * CHANNELS + j]
                total += b2 * w[5 * CHANNELS + j]
                total += c0 * w[6 * CHANNELS + j]
                total += c1 * w[7 * CHANNELS + j]
                total += c2 * w[8 * CHANNELS + j]
                sums[j] = total


@kernel(void(_floats, _floats, int64, _floats))
def convolve(packed, x, size, y):
    """Convolve x: (size + 2, size + 2, 32) into y: (half + 2, half + 2, 32).

    half = ceil(size / 2); both have zeros around them.
    """
    half = (size + 1) // 2
    for row in range(1, half + 1):
        for column in range(1, half + 1):
            at = (row * (half + 2) + column) * CHANNELS
            for j in range(CHANNELS):
                y[at + j] = packed[j]
    # A block of weights stays in the cache while all of the image passes over it.
    for tap in range(0, 9 * CHANNELS, UNROLL):
        w = packed[(1 + tap) * CHANNELS : (1 + tap + UNROLL) * CHANNELS]
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


@kernel(void(_floats, int64, _doubles))
def add_moments(x, size, sums):
    """Add the sums and sums of squares of x's channels to sums: (2 * 32,), without x's frame.

    x: (size + 2, size + 2, 32).
    """
    for row in range(1, size + 1):
        for column in range(1, size + 1):
            at = (row * (size + 2) + column) * CHANNELS
            for j in range(CHANNELS):
                value = float64(x[at + j])
                sums[j] += value
                sums[CHANNELS + j] += value * value


@kernel(void(_floats, _doubles, float64, _floats, _floats))
def normalize(packed, moments, added, scale, shift):
    """Fold batch normalisation into a packed convolution without a bias.

    moments: (2 * 32,), means and variances of its result's channels. added: to the variances.
    scale, shift: (32,).
    """
    for j in range(CHANNELS):
        factor = scale[j] / np.sqrt(moments[CHANNELS + j] + added)
        packed[j] = shift[j] - moments[j] * factor
        for at in range(CHANNELS + j, packed.size, CHANNELS):
            packed[at] *= float32(factor)


@kernel(void(_floats, int64, _floats))
def channels_first(x, size, y):
    """Copy x: (size + 2, size + 2, 32), without its frame, to y: (32, size, size)."""
    for row in range(size):
        for column in range(size):
            at = ((row + 1) * (size + 2) + column + 1) * CHANNELS
            for j in range(CHANNELS):
                y[(j * size + row) * size + column] = x[at + j]
