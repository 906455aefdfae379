"""The Evolution Strategy: ask() for perturbations, tell() their returns. It knows no processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from es.noise import FloatArray, Stream, derive_seed, draw
from es.shaping import nes_utilities


class Perturbation(NamedTuple):
    """One member of the population: theta + sign * sigma * noise(seed)."""

    seed: int
    sign: int


class Strategy:
    """Mirrored-sampling ES (Salimans et al. 2017, section 2) with rank-based fitness shaping.

    theta: (P,) float32, the parameters; it is updated in place.
    update: the number of updates so far.
    """

    def __init__(
        self,
        theta: FloatArray,
        *,
        n: int,
        sigma: float,
        lr: float,
        lr_decay: float = 1.0,
        use_adam: bool = False,
        seed: int = 0,
    ) -> None:
        self.theta = theta
        self.n, self.sigma, self.seed = n, sigma, seed
        self.initial_lr, self.lr_decay = lr, lr_decay
        self.update = 0
        self._parameter = torch.from_numpy(theta)  # shares theta's memory
        make_optimizer = torch.optim.Adam if use_adam else torch.optim.SGD
        self.optimizer: torch.optim.Optimizer = make_optimizer([self._parameter], lr=lr)
        self._noise = np.empty_like(theta)

    @property
    def lr(self) -> float:
        """The learning rate of the coming update."""
        return self.initial_lr * self.lr_decay**self.update

    def ask(self) -> list[Perturbation]:
        """The n perturbations of this update; a pair's members stand side by side, + before -."""
        seeds = [
            derive_seed(self.seed, self.update, Stream.PERTURBATION, pair)
            for pair in range(self.n // 2)
        ]
        return [Perturbation(seed, sign) for seed in seeds for sign in (1, -1)]

    def tell(self, returns: Sequence[float]) -> float:
        """Steps along the estimated gradient; the result is the estimate's norm.

        returns: (n,), in the order of ask(). Where they tell nothing apart, the optimiser is not
        called at all: its momentum alone would move the parameters.
        """
        gradient = self.gradient(returns)
        norm = float(np.sqrt(np.sum(gradient.astype(np.float64) ** 2)))
        if norm > 0:
            for group in self.optimizer.param_groups:
                group["lr"] = self.lr
            self._parameter.grad = torch.from_numpy(-gradient)  # optimisers minimise
            self.optimizer.step()
        self.update += 1
        return norm

    def gradient(self, returns: Sequence[float]) -> FloatArray:
        """1 / (n * sigma) * sum of utility * sign * noise, as (P,) float32.

        The noise is rebuilt from the seeds and summed in index order, one pair at a time; a pair
        whose utilities are equal contributes nothing and costs nothing.
        """
        utilities = nes_utilities(returns)
        gradient = np.zeros_like(self.theta)
        for pair, weight in enumerate(utilities[0::2] - utilities[1::2]):
            if weight != 0:
                draw(derive_seed(self.seed, self.update, Stream.PERTURBATION, pair), self._noise)
                self._noise *= np.float32(weight)
                gradient += self._noise
        gradient *= np.float32(1 / (self.n * self.sigma))
        return gradient

    def load_optimizer(self, state: dict[str, Any]) -> None:
        """Takes up the optimiser's state; ValueError or KeyError where it is not of this one."""
        for values in state["state"].values():
            for name, value in values.items():
                if name != "step" and value.shape != self.theta.shape:
                    raise ValueError(f"the optimiser's {name} has the shape {tuple(value.shape)}")
        self.optimizer.load_state_dict(state)
