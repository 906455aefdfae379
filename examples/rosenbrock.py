"""Minimise any function with ask and tell: the 100-dimensional Rosenbrock function, in parallel.

In the project's folder: python -m examples.rosenbrock [UPDATES]
"""

import sys
from typing import Any

import numpy as np

from es.algorithm.strategy import Strategy
from es.rollouts.pool import WorkerPool
from es.rollouts.remote import ByValue, RemotePool
from es.rollouts.tasks import Recipe, Snapshot, training_tasks

DIMENSIONS, PERTURBATIONS, SEED = 100, 600, 1


def rosenbrock(x: np.ndarray) -> float:
    """Return sum of 100 (x[i+1] - x[i]^2)^2 + (1 - x[i])^2, which is 0 where all x are 1."""
    return float(np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2))


class Function:
    """The function as an environment: an episode has one step, whose reward is its value."""

    def reset(self, *, seed: int | None = None) -> tuple[None, dict[str, Any]]:
        return None, {}

    def step(self, action: np.ndarray) -> tuple[None, float, bool, bool, dict[str, Any]]:
        return None, -rosenbrock(action), True, False, {}  # the strategy maximises

    def close(self) -> None:
        pass


class Parameters:
    """The perturbed parameters as a policy: the action is they themselves."""

    def bind(self, theta: np.ndarray, statistics: Any = None) -> None:
        self.theta = theta

    def reset(self, seed: Any = None, noise_seeds: Any = None) -> None:
        pass

    def act(self, observation: None) -> np.ndarray:
        return self.theta.astype(np.float64)

    def observed(self) -> None:
        return None


def minimise(updates: int) -> None:
    """Print the function's value after each tenth of the updates: of 1500, from 99 to about 10."""
    theta = np.zeros(DIMENSIONS, np.float32)  # which the strategy changes in place
    strategy = Strategy(
        theta,
        n=PERTURBATIONS,
        sigma=0.005,
        sigma_decay=0.2 ** (1 / updates),
        lr=0.05,
        lr_schedule="linear",
        updates=updates,
        optimizer_name="adam",
        shaping="normalized",
        seed=SEED,
    )
    with RemotePool() as pool:  # which needs no `if __name__ == "__main__"`
        recipe = Recipe(ByValue(Function), ByValue(Parameters))
        pool.open(WorkerPool, recipe, size=DIMENSIONS, members=PERTURBATIONS, workers="auto")
        for update in range(1, updates + 1):
            tasks = training_tasks(SEED, strategy.update, strategy.ask(), cap=1)
            results = pool.evaluate(Snapshot(theta, strategy.sigma), tasks)
            strategy.tell(results["episode_return"])
            if update % max(1, updates // 10) == 0:
                print(f"update {update}: {rosenbrock(theta):.4g}", flush=True)


minimise(int(sys.argv[1]) if len(sys.argv) > 1 else 1500)
