"""The estimate of the gradient, written out."""

import math
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


def brute_force_direction(strategy: Strategy, returns: list[float]) -> np.ndarray:
    """1/(n sigma) sum u_i sign_i eps_i, with every noise vector and every rank written out."""
    n = len(returns)
    order = sorted(range(n), key=lambda i: -returns[i])
    raw = [0.0] * n
    for place, i in enumerate(order, start=1):
        raw[i] = max(0.0, math.log2(n / 2 + 1) - math.log2(place))
    total = np.zeros(SIZE)
    for member, value in zip(strategy.ask(), raw, strict=True):
        noise = draw(member.seed, np.empty(SIZE, np.float32)).astype(np.float64)
        total += (value / sum(raw) + 1 / n) * member.sign * noise
    return total / (n * strategy.sigma)


def noise_of(strategy: Strategy) -> np.ndarray:
    """sign * eps of every member, (n, SIZE) float64."""
    return np.array(
        [member.sign * draw(member.seed, np.empty(SIZE, np.float32)) for member in strategy.ask()],
        np.float64,
    )


RETURNS = [3.0, -1.0, 4.0, 4.5, 2.0, 0.0, -7.0, -6.0]
