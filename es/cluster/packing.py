"""Tasks and results as arrays, which are sent much faster than tuples."""

import sys
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from es.algorithm.noise import DoubleArray
from es.rollouts.rollout import Result, Task

Integers = npt.NDArray[np.int64]


class Packed(NamedTuple):
    """k results. numbers: index and steps, (k, 2). returns, clipped: (k,).

    observed: (k, 2, inputs).
    """

    numbers: Integers
    returns: DoubleArray
    observed: DoubleArray | None
    clipped: DoubleArray | None


def pack_tasks(tasks: Sequence[Task]) -> Integers:
    """Return the tasks' numbers, (k, 5)."""
    rows = [(*task[:-1], min(task.cap, sys.maxsize)) for task in tasks]
    return np.array(rows, np.int64).reshape(-1, len(Task._fields))


def unpack_tasks(rows: Integers) -> list[Task]:
    """Return the tasks of `pack_tasks`."""
    return [*map(Task._make, rows.tolist())]


def pack_results(results: Sequence[Result]) -> Packed:
    """Return the results' numbers; all of them have `observed` and clipped returns, or none."""
    sums = [result.observed for result in results if result.observed is not None]
    clipped = [r.clipped_return for r in results if r.clipped_return is not None]
    return Packed(
        np.array([(result.index, result.steps) for result in results], np.int64).reshape(-1, 2),
        np.array([result.episode_return for result in results], np.float64),
        np.stack(sums) if sums else None,
        np.array(clipped, np.float64) if clipped else None,
    )


def unpack_results(packed: Packed) -> list[Result]:
    """Return the results of `pack_results`."""
    nothing = [None] * len(packed.returns)
    observed = nothing if packed.observed is None else packed.observed
    clipped = nothing if packed.clipped is None else packed.clipped.tolist()
    numbers, returns = packed.numbers.tolist(), packed.returns.tolist()
    return [
        Result(index, episode_return, steps, sums, total)
        for (index, steps), episode_return, sums, total in zip(
            numbers, returns, observed, clipped, strict=True
        )
    ]
