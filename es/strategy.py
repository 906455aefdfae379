"""The Evolution Strategy: ask() for perturbations, tell() their returns. It knows no processes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from es.errors import RunError
from es.noise import FloatArray, Stream, derive_seeds, weighted_sum
from es.shaping import nes_utilities

MAX_LR = 1e38  # float32's range
MOMENTS = {torch.optim.SGD: set[str](), torch.optim.Adam: {"step", "exp_avg", "exp_avg_sq"}}


class Perturbation(NamedTuple):
    """One member of the population: theta + sign * sigma * noise(seed)."""

    seed: int
    sign: int


class Strategy:
    """Mirrored-sampling ES (Salimans et al. 2017, section 2) with rank-based fitness shaping.

    theta: (P,) float32, the parameters; it is updated in place.
    threads: how many rebuild the noise. update: the number of updates so far. lr: the learning
    rate of the coming one.
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
        threads: int = 1,
    ) -> None:
        self.theta = theta
        self.n, self.sigma, self.seed = n, sigma, seed
        self.lr, self.lr_decay = lr, lr_decay
        self.update = 0
        self._parameter = torch.from_numpy(theta)  # shares theta's memory
        make_optimizer = torch.optim.Adam if use_adam else torch.optim.SGD
        self.optimizer: torch.optim.Optimizer = make_optimizer([self._parameter], lr=lr)
        self._threads = threads

    def ask(self) -> list[Perturbation]:
        """The n perturbations of this update; a pair's members stand side by side, + before -."""
        return [Perturbation(seed, sign) for seed in self._seeds() for sign in (1, -1)]

    def tell(self, returns: Sequence[float]) -> float:
        """Steps along the estimated gradient; the result is the estimate's norm.

        returns: (n,), in the order of ask(). Where they tell nothing apart, the optimiser is not
        called at all: its momentum alone would move the parameters. Raises RunError when the
        parameters leave the range of numbers.
        """
        gradient = self.gradient(returns)
        norm = float(np.sqrt(np.sum(gradient.astype(np.float64) ** 2)))
        if not (math.isfinite(norm) and self.lr <= MAX_LR):
            raise RunError(
                f"no step is possible: gradient norm {norm:g}, learning rate {self.lr:g}"
            )
        if norm > 0:
            for group in self.optimizer.param_groups:
                group["lr"] = self.lr
            self._parameter.grad = torch.from_numpy(-gradient)  # optimisers minimise
            self.optimizer.step()
            if not np.isfinite(self.theta).all():
                raise RunError("the parameters are no longer finite: --lr is too high")
        self.lr *= self.lr_decay
        self.update += 1
        return norm

    def gradient(self, returns: Sequence[float]) -> FloatArray:
        """1 / (n * sigma) * sum of utility * sign * noise, as (P,) float32.

        The noise is rebuilt from the seeds and summed in index order; a pair whose utilities are
        equal contributes nothing and costs nothing.
        """
        utilities = nes_utilities(returns)
        weights = utilities[0::2] - utilities[1::2]
        told = [pair for pair in zip(self._seeds(), weights, strict=True) if pair[1] != 0]
        gradient = weighted_sum(told, self.theta.size, self._threads)
        gradient *= np.float32(1 / (self.n * self.sigma))
        return gradient

    def _seeds(self) -> list[int]:
        return derive_seeds(self.seed, self.update, Stream.PERTURBATION, self.n // 2)

    def load_optimizer(self, state: dict[str, Any]) -> None:
        """Takes up the moments of an optimiser's state_dict; ValueError where they do not fit."""
        expected = MOMENTS[type(self.optimizer)]
        for values in state["state"].values():
            if set(values) != expected:
                raise ValueError(f"the optimiser's state holds {sorted(map(str, values))}")
            for name, value in values.items():
                shape = () if name == "step" else self.theta.shape
                if value.shape != shape or not torch.isfinite(value).all():
                    raise ValueError(f"the optimiser's {name} is not as this network's should be")
        own = self.optimizer.state_dict()
        self.optimizer.load_state_dict({**own, "state": state["state"]})
