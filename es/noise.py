"""Seed -> perturbation: the only place where seeds are derived and noise is drawn.

Everything random in a run comes from a generator made from (run seed, update, stream, index), so
it depends neither on the number of workers nor on what was drawn before.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float32]


class Stream(IntEnum):
    """What a seed is for; each purpose has seeds of its own."""

    PARAMETERS = 0
    PERTURBATION = 1
    EPISODE = 2
    EVALUATION = 3


def derive_seed(run_seed: int, update: int, stream: Stream, index: int) -> int:
    """A 31-bit seed, the widest that every simulator takes."""
    sequence = np.random.SeedSequence((run_seed, update, int(stream), index))
    return int(sequence.generate_state(1)[0] >> 1)


def draw(seed: int, out: FloatArray) -> FloatArray:
    """Fills out: (P,) float32 with standard normal noise, always the same for the same seed.

    SFC64 is NumPy's fastest generator; its normals do not depend on the CPU's vector units, as
    torch's do.
    """
    generator = np.random.Generator(np.random.SFC64(seed))
    return generator.standard_normal(dtype=np.float32, out=out)


def perturb(theta: FloatArray, seed: int, sign: int, sigma: float, out: FloatArray) -> FloatArray:
    """Fills out: (P,) float32 with theta + sign * sigma * noise; sign 0 copies theta."""
    if sign == 0:
        np.copyto(out, theta)
        return out
    draw(seed, out)
    out *= np.float32(sign * sigma)
    out += theta
    return out
