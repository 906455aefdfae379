"""What the Convnet-LSTM's step would gain by LSTM weights of 16 bits (bfloat16); see LOG.md.

They are 95 % of all weights: 2.2 MB, more than many processors' second-level cache. Two lie in 32
bits, and are widened in registers: the odd input's by a shift, the even one's by clearing the lower
half, or by nothing (it is then rounded to what the lower half makes of it). Processor time of the
convolutions and the gates, all but 3 us of a step, in slices of 20 steps that alternate.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from operator import truediv
from typing import Any

import numba
import numpy as np
from numba import float32, uint32, void

from benchmarks.harness import processor
from es.kernels import layers
from es.kernels.packing import aligned
from es.networks.convlstm import FEATURES, UNITS, ConvLSTMActor

PANEL, UNROLL = layers.PANEL, layers.UNROLL
INPUTS, GATES, STEPS = FEATURES + UNITS, 4 * UNITS, 20
_LOW, _HIGH = np.uint32(16), np.uint32(0xFFFF0000)


def make_gates(mask: np.uint32) -> Callable[..., None]:
    """Do what `layers.dense` does, for weights of 16 bits. mask: of the even inputs' weights."""

    @numba.njit(inline="always")
    def even(pair: Any) -> Any:
        return np.uint32(pair & mask).view(np.float32)

    @numba.njit(inline="always")
    def odd(pair: Any) -> Any:
        return np.uint32(pair << _LOW).view(np.float32)

    def gates(pairs: Any, bias: Any, x: Any, y: Any) -> None:
        for panel in range(y.size // PANEL):
            sums = y[panel * PANEL : (panel + 1) * PANEL]
            weights = pairs[panel * x.size // 2 * PANEL : (panel + 1) * x.size // 2 * PANEL]
            for j in range(PANEL):
                sums[j] = bias[panel * PANEL + j]
            for i in range(0, x.size, UNROLL):
                w = weights[i // 2 * PANEL : (i + UNROLL) // 2 * PANEL]
                x0, x1, x2, x3 = x[i], x[i + 1], x[i + 2], x[i + 3]
                x4, x5, x6, x7 = x[i + 4], x[i + 5], x[i + 6], x[i + 7]
                for j in range(PANEL):
                    a, b, c, d = w[j], w[PANEL + j], w[2 * PANEL + j], w[3 * PANEL + j]
                    left = x0 * even(a)
                    left += x1 * odd(a)
                    left += x2 * even(b)
                    left += x3 * odd(b)
                    right = x4 * even(c)
                    right += x5 * odd(c)
                    right += x6 * even(d)
                    right += x7 * odd(d)
                    sums[j] += left + right

    signature = void(uint32[::1], *3 * [float32[::1]])
    return numba.njit([signature], fastmath={"contract"}, error_model="numpy")(gates)


def main() -> None:
    """Print microseconds of each, and the median of its ratios to today's."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=400)
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    actions = {"kind": "discrete", "n": 6, "start": 0}
    actor = ConvLSTMActor({"kind": "convlstm", "inputs": 1, "vbn": False, "actions": actions})
    actor.bind((0.05 * rng.normal(size=sum(actor._sizes))).astype(np.float32))
    observation = rng.normal(size=(1, 42, 42)).astype(np.float32)
    actor.act(observation)
    panels = actor._lstm.reshape(-1, 1 + INPUTS, PANEL)
    bits = panels[:, 1:].copy().view(np.uint32) + np.uint32(0x8000)  # rounds
    pairs = aligned(bits.size // 2).view(np.uint32)
    pairs[:] = (bits[:, ::2] & _HIGH | bits[:, 1::2] >> _LOW).reshape(-1)
    panels[:, 1:] = (bits & _HIGH).view(np.float32)  # for the same result
    bias, y, expected = panels[:, 0].reshape(-1).copy(), aligned(GATES), aligned(GATES)
    masked, unmasked = make_gates(_HIGH), make_gates(np.uint32(0xFFFFFFFF))
    x = actor._x
    functions: dict[str, Callable[[], None]] = {
        "32 bits": lambda: layers.dense(actor._lstm, x, INPUTS, GATES, expected),
        "16 bits, not masked": lambda: unmasked(pairs, bias, x, y),
        "16 bits": lambda: masked(pairs, bias, x, y),
    }

    def seconds(function: Callable[[], None]) -> float:
        start = time.thread_time()
        for _ in range(STEPS):
            image = observation
            for layer in range(4):
                image = actor._activate(layer, image)
            function()
        return (time.thread_time() - start) / STEPS

    times = [[seconds(each) for each in functions.values()] for _ in range(arguments.rounds + 1)]
    assert np.array_equal(y, expected)
    print(processor())
    for name, *figures in zip(functions, *times[1:], strict=True):
        ratio = statistics.median(map(truediv, figures, (row[0] for row in times[1:])))
        least, median = 1e6 * min(figures), 1e6 * statistics.median(figures)
        print(f"{name}: least {least:.1f} us, median {median:.1f} us, ratio {ratio:.3f}")


if __name__ == "__main__":
    main()
