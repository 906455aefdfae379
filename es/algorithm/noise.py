"""Seeds, the noise drawn from them, and sums of noise.

Every generator of a run is made from (run seed, update, stream, index), so that a draw depends
neither on the number of workers nor on earlier draws.
"""

import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import IntEnum

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float32]
DoubleArray = npt.NDArray[np.float64]
# Seeds, each with the weight of its noise, or with that and the weight of its noise^2 - 1.
Weights = Sequence[tuple[int, float]] | Sequence[tuple[int, float, float]]

WORTH_THREADS = 50_000  # numbers; for fewer, a thread takes longer than drawing them


class Stream(IntEnum):
    """The purpose of a seed; each purpose has its own seeds."""

    PARAMETERS = 0
    PERTURBATION = 1
    EPISODE = 2
    EVALUATION = 3
    NOOPS = 4
    ACTIONS = 5
    VBN_BATCH = 6
    SAMPLES = 7
    SPACES = 8


def derive_seeds(run_seed: int, update: int, stream: Stream, count: int) -> list[int]:
    """Return the first `count` distinct seeds of a stream; every simulator accepts their 31 bits.

    Repeated seeds are skipped: NumPy's sequence has more of them than chance would give.
    """
    sequence = np.random.SeedSequence((run_seed, update, int(stream)))
    seeds: dict[int, None] = {}
    drawn = count
    while len(seeds) < count:
        seeds = dict.fromkeys((sequence.generate_state(drawn) >> 1).tolist())
        drawn += count - len(seeds)
    return list(seeds)


def seed_shared_generators(seed: int) -> None:
    """Seed Python's and NumPy's global generators, which an environment may use."""
    random.seed(seed)
    np.random.seed(seed)


def action_noise(task_seeds: Sequence[int]) -> np.random.Generator:
    """Return the generator of an episode's noise on actions."""
    return np.random.Generator(np.random.SFC64([*task_seeds, int(Stream.ACTIONS)]))


def action_samples(episode_seed: int | None) -> np.random.Generator:
    """Return the generator that an episode's actions are drawn with; None: a new one each time."""
    seeds = None if episode_seed is None else [episode_seed, int(Stream.SAMPLES)]
    return np.random.Generator(np.random.SFC64(seeds))


def draw(seed: int, out: FloatArray, fraction: float = 1.0) -> FloatArray:
    """Fill out, (P,) float32, with the standard normal noise of this seed, and return it.

    fraction: the share of numbers, chosen by the same seed, that are not set to 0. SFC64 is NumPy's
    fastest generator.
    """
    generator = np.random.Generator(np.random.SFC64(seed))
    generator.standard_normal(dtype=np.float32, out=out)
    if fraction < 1:
        out *= generator.random(out.size, dtype=np.float32) < fraction
    return out


def weighted_sum(
    weights: Weights, size: int, fraction: float = 1.0, *, threads: int = 1
) -> FloatArray:
    """Return the sum of weight * noise over all seeds, in the given order: (size,) float32.

    If seeds have two weights, return the sums of the first * noise and of the second *
    (noise^2 - 1): (2, size); each noise is drawn once for both. fraction: as for `draw`. threads:
    how many draw the noise; the sum does not depend on this.
    """
    if size < WORTH_THREADS:
        threads = 1
    rows = len(weights[0]) - 1 if weights else 1
    buffers = [np.empty((rows, size), np.float32) for _ in range(threads)]
    total = np.zeros((rows, size), np.float32)

    def rebuild(index: int) -> FloatArray:
        seed, *factors = weights[index]
        terms = buffers[index % threads]
        draw(seed, terms[0], fraction)
        if rows == 2:
            np.square(terms[0], out=terms[1])
            terms[1] -= 1
        terms *= np.array(factors, np.float32)[:, np.newaxis]
        return terms

    with ThreadPoolExecutor(threads) as executor:
        in_parallel = executor.map if threads > 1 else map
        for start in range(0, len(weights), threads):  # one noise for each buffer
            for terms in in_parallel(rebuild, range(start, min(start + threads, len(weights)))):
                total += terms
    return total if rows == 2 else total[0]


def perturb(
    theta: FloatArray,
    noise: FloatArray,
    scale: float,
    out: FloatArray,
    relative_sigma: FloatArray | None = None,
) -> FloatArray:
    """Fill out, (P,) float32, with theta + scale * relative_sigma * noise, and return it.

    scale: a sign, which may be 0, times sigma. relative_sigma: (P,), each parameter's sigma
    relative to the common one; None: 1.
    """
    if scale == 0:
        np.copyto(out, theta)
        return out
    np.multiply(noise, np.float32(scale), out=out)
    if relative_sigma is not None:
        out *= relative_sigma
    out += theta
    return out
