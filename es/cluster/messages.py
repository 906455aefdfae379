"""What the master and the process that talks to Ray say to each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from es.cluster.packing import Integers, Packed
from es.errors import RunError
from es.noise import FloatArray, Weights
from es.rollouts.rollout import Snapshot


class Order(NamedTuple):
    """What the agents are made of. recipe: pickled, so that only agents import what it needs.

    The others are those of `RayPool`.
    """

    recipe: bytes
    size: int
    inputs: int
    workers: int | Literal["auto"] | None
    timeout: float | None
    patience: float
    preload: Sequence[str]


class Status(NamedTuple):
    """Who is playing. out: episodes that nodes have; again: those handed out once more."""

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
    """How long a sum may take on the nodes: more than one core would need here."""
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
    """Sent where Ray, or the use of it, fails; the process then ends, and another may do better."""

    cause: str


Answer = Said | Played | Summed | Connected | Failed | Broken
