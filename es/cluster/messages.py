"""The messages between the master and the process that talks to Ray."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from es.algorithm.noise import FloatArray, Weights
from es.cluster.packing import Integers, Packed
from es.errors import RunError
from es.rollouts.rollout import Snapshot


class Order(NamedTuple):
    """The arguments of `RayPool`. recipe: pickled, so that only agents import its modules."""

    recipe: bytes
    workers: int | Literal["auto"] | None
    patience: float
    preload: Sequence[str]
    settings: Mapping[str, Any]


class Status(NamedTuple):
    """Who plays. out: episodes that nodes have; again: episodes that were handed out again."""

    nodes: int = 0
    workers: int = 0
    out: int = 0
    again: int = 0


class Play(NamedTuple):
    """Asks for tasks to be played."""

    snapshot: Snapshot
    tasks: Integers


class Sum(NamedTuple):
    """Asks for `noise.weighted_sum`."""

    weights: Weights
    size: int
    fraction: float


class Said(NamedTuple):
    """A line for the user."""

    line: str


def sum_seconds(weights: Weights, size: int) -> float:
    """Return the time limit of a sum on the nodes: longer than one core would need here."""
    return 10.0 + 2e-8 * len(weights) * size


class Played(NamedTuple):
    """Results, as they come."""

    results: list[Packed]
    status: Status


class Summed(NamedTuple):
    """The sum that was asked for."""

    total: FloatArray


class Connected(NamedTuple):
    """Sent once Ray is reached."""


class Failed(NamedTuple):
    """Sent instead of an answer; the process then ends."""

    error: RunError


class Broken(NamedTuple):
    """Sent if Ray fails; the process then ends, and another one may work."""

    cause: str


Answer = Said | Played | Summed | Connected | Failed | Broken
