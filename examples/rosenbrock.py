"""Minimise any function with ask and tell: the 100-dimensional Rosenbrock function.

In the project's folder: python -m examples.rosenbrock [UPDATES]
"""

import sys

import numpy as np

from es.algorithm.strategy import Strategy
from es.config import Config


def rosenbrock(x: np.ndarray) -> np.ndarray:
    """Return sum of 100 (x[i+1] - x[i]^2)^2 + (1 - x[i])^2, which is 0 where all x are 1."""
    left, right = x[..., :-1], x[..., 1:]
    return np.sum(100 * (right - left**2) ** 2 + (1 - left) ** 2, axis=-1)


updates = int(sys.argv[1]) if len(sys.argv) > 1 else 1500
theta = np.zeros(100, np.float32)  # the strategy changes it in place
settings = Config(
    n=600, sigma=0.005, sigma_decay=0.2 ** (1 / updates), lr=0.05, lr_schedule="linear",
    max_gradient_updates=updates, optimizer="adam", shaping="normalized", seed=1,
)  # fmt: skip
strategy = Strategy(theta, settings)
for update in range(1, updates + 1):
    strategy.tell(-rosenbrock(strategy.candidates().astype(np.float64)))  # tell maximises
    if update % max(1, updates // 10) == 0:
        print(f"update {update}: {rosenbrock(theta.astype(np.float64)):.4g}", flush=True)
