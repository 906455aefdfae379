"""The estimate of the gradient, written out."""

from typing import Any

import numpy as np

from es.algorithm.noise import draw
from es.algorithm.strategy import Strategy
from es.config import Config

SIZE = 50


def theta() -> np.ndarray:
    return np.linspace(-1, 1, SIZE, dtype=np.float32)


def make(seed: int | None = 0, **settings: Any) -> Strategy:
    return Strategy(theta(), Config(seed=seed, **settings))


def noise_of(strategy: Strategy) -> np.ndarray:
    """sign * eps of every member, (n, SIZE) float64."""
    return np.array(
        [member.sign * draw(member.seed, np.empty(SIZE, np.float32)) for member in strategy.ask()],
        np.float64,
    )


RETURNS = [3.0, -1.0, 4.0, 4.5, 2.0, 0.0, -7.0, -6.0]
