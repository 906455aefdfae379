"""Images: look up and shrink screens, and standardise."""

from functools import partial

import numpy as np
from numba import boolean, float32, float64, int64, njit, uint8, void

# "contract" rounds a product and the sum it goes into once, and reorders nothing.
kernel = partial(njit, cache=True, fastmath={"contract"}, error_model="numpy", nogil=True)

_floats, _doubles, _integers, _bytes = float32[::1], float64[::1], int64[::1], uint8[:, ::1]


@kernel()
def _same(a, b):
    different = np.uint8(0)
    for i in range(a.size):
        different |= a[i] ^ b[i]
    return different == 0


@kernel(boolean(_bytes, _bytes, _floats, _integers, _floats, _floats, _floats))
def shrink(screen, seen, table, first, taps, rows, image):
    """Look up a square of bytes in a table, and resample its rows and columns alike.

    screen: (height, height); image: (size * size,). Along a side, pixel i of the image is the sum
    of 4 pixels from first[i] on, times taps[4 * i] and following. table: (256,), with a large
    negative number for each unknown byte: return False if a row's sum is negative. Rows that are
    the same as in `seen` are not looked up again: rows: (height * size,) holds them shrunk. `seen`
    becomes the screen.
    """
    height, size, known = screen.shape[0], first.size, True
    for row in range(height):
        if _same(screen[row], seen[row]):
            continue
        for column in range(height):
            seen[row, column] = screen[row, column]
        for column in range(size):
            at = first[column]
            total = table[screen[row, at]] * taps[4 * column]
            total += table[screen[row, at + 1]] * taps[4 * column + 1]
            total += table[screen[row, at + 2]] * taps[4 * column + 2]
            total += table[screen[row, at + 3]] * taps[4 * column + 3]
            rows[row * size + column] = total
            known &= total >= 0
    for row in range(size):
        above = rows[first[row] * size : (first[row] + 4) * size]
        below = image[row * size : (row + 1) * size]
        t0, t1, t2, t3 = taps[4 * row], taps[4 * row + 1], taps[4 * row + 2], taps[4 * row + 3]
        for column in range(size):
            total = above[column] * t0
            total += above[size + column] * t1
            total += above[2 * size + column] * t2
            total += above[3 * size + column] * t3
            below[column] = total
    return known


@kernel(void(_floats, _doubles, float64, _doubles, _floats))
def standardize(image, averages, alpha, sums, out):
    """Fill out with (image - mean) / (std + 1e-8), by running averages of the images' figures.

    averages: (3,), of the mean and of the std, and alpha to the power of the number of images,
    which corrects both for their start at 0. sums: (lanes,), scratch; lanes divides the size.
    """
    lanes, size = sums.size, image.size
    mean = 0.0
    sums[:] = 0
    for i in range(0, size, lanes):
        for j in range(lanes):
            sums[j] += image[i + j]
    for j in range(lanes):
        mean += sums[j]
    mean /= size
    variance = 0.0
    sums[:] = 0
    for i in range(0, size, lanes):
        for j in range(lanes):
            sums[j] += (image[i + j] - mean) * (image[i + j] - mean)
    for j in range(lanes):
        variance += sums[j]
    averages[0] = alpha * averages[0] + (1 - alpha) * mean
    averages[1] = alpha * averages[1] + (1 - alpha) * np.sqrt(variance / size)
    averages[2] *= alpha
    centre = np.float32(averages[0] / (1 - averages[2]))
    spread = np.float32(averages[1] / (1 - averages[2]) + 1e-8)
    for i in range(size):
        out[i] = (image[i] - centre) / spread
