"""Seed -> perturbation: the only place where seeds are derived and noise is drawn.

Everything random in a run comes from a generator made from (run seed, update, stream, index), so
it depends neither on the number of workers nor on what was drawn before.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import IntEnum

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float32]
DoubleArray = npt.NDArray[np.float64]
Weights = Sequence[tuple[int, float]]  # of seeds and the weights of their noise
SumNoise = Callable[[Weights, int, float], FloatArray]  # `weighted_sum`, here or elsewhere

WORTH_THREADS = 50_000  # numbers; handing over less takes longer than drawing it
LEAF, FAN = 64, 8  # of the tree in which noise is summed: changing them changes results


class Stream(IntEnum):
    """What a seed is for; each purpose has seeds of its own."""

    PARAMETERS = 0
    PERTURBATION = 1
    EPISODE = 2
    EVALUATION = 3
    NOOPS = 4
    ACTIONS = 5
    VBN_BATCH = 6


def derive_seeds(run_seed: int, update: int, stream: Stream, count: int) -> list[int]:
    """The first `count` seeds of a stream: of 31 bits, the widest that every simulator takes."""
    sequence = np.random.SeedSequence((run_seed, update, int(stream)))
    return (sequence.generate_state(count) >> 1).tolist()


def seed_shared_generators(seed: int) -> None:
    """Seeds Python's and NumPy's own generators, from which an environment may draw besides."""
    random.seed(seed)
    np.random.seed(seed)


def action_noise(task_seeds: Sequence[int]) -> np.random.Generator:
    """What noise on actions is drawn from in an episode: by its task's seeds."""
    return np.random.Generator(np.random.SFC64([*task_seeds, int(Stream.ACTIONS)]))


def draw(seed: int, out: FloatArray, fraction: float = 1.0) -> FloatArray:
    """Fills out: (P,) float32 with standard normal noise, always the same for the same seed.

    fraction: of the numbers, chosen at random by the same seed; the others are 0.

    SFC64 is NumPy's fastest generator; its normals do not depend on the CPU's vector units, as
    torch's do.
    """
    generator = np.random.Generator(np.random.SFC64(seed))
    generator.standard_normal(dtype=np.float32, out=out)
    if fraction < 1:
        out *= generator.random(out.size, dtype=np.float32) < fraction
    return out


def weighted_sum(
    weights: Weights, size: int, fraction: float = 1.0, *, threads: int = 1
) -> FloatArray:
    """The sum of weight * noise over pairs of seed and weight, as (size,) float32.

    It is added up in a tree whose shape depends on the number of weights alone, however many
    threads draw the noise: LEAF of them in their order, and these sums as `tree_sum` does. So
    each leaf may be summed elsewhere. fraction: as for `draw`.
    """
    threads = threads if size >= WORTH_THREADS else 1
    buffers = [np.empty(size, np.float32) for _ in range(threads)]

    def rebuild(index: int) -> FloatArray:
        seed, weight = weights[index]
        noise = draw(seed, buffers[index % threads], fraction)
        noise *= np.float32(weight)
        return noise

    def leaf(number: int) -> FloatArray:
        total = np.zeros(size, np.float32)
        end = min((number + 1) * LEAF, len(weights))
        for start in range(number * LEAF, end, threads):  # each time as many as there are buffers
            for noise in in_parallel(rebuild, range(start, min(start + threads, end))):
                total += noise
        return total

    with ThreadPoolExecutor(threads) as executor:
        in_parallel = executor.map if threads > 1 else map
        return _tree(leaf, range(max(1, math.ceil(len(weights) / LEAF))))


def tree_sum(parts: Sequence[FloatArray]) -> FloatArray:
    """The sum of arrays of the same shape: FAN after the other, FAN of these sums, and so on.

    Of the sums of all leaves, or of FAN leaves each, it is the sum over these leaves.
    """
    return _tree(lambda number: parts[number].copy(), range(len(parts)))


def _tree(part: Callable[[int], FloatArray], numbers: range) -> FloatArray:
    """The tree's sum over the parts with these numbers; part: makes one, as a new array."""
    if len(numbers) == 1:
        return part(numbers[0])
    span = 1
    while span * FAN < len(numbers):
        span *= FAN
    total = _tree(part, numbers[:span])
    for start in range(span, len(numbers), span):
        total += _tree(part, numbers[start : start + span])
    return total


def perturb(
    theta: FloatArray,
    seed: int,
    sign: int,
    sigma: float,
    out: FloatArray,
    fraction: float = 1.0,
) -> FloatArray:
    """Fills out: (P,) float32 with theta + sign * sigma * noise; sign 0 copies theta."""
    if sign == 0:
        np.copyto(out, theta)
        return out
    draw(seed, out, fraction)
    out *= np.float32(sign * sigma)
    out += theta
    return out
