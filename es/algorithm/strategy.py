"""The Evolution Strategy: ask() for perturbations, tell() their returns."""

import math
from dataclasses import KW_ONLY, dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from es.algorithm.optimizer import Optimizer, scheduled
from es.algorithm.shaping import SHAPINGS, Utilities
from es.errors import RunError
from es.noise import FloatArray, Stream, SumNoise, derive_seeds, weighted_sum

MAX_LR = 1e38  # float32's range
LEAST = 1e-30  # sigma and the learning rate decay to at least this; 1 / LEAST is in that range


class Perturbation(NamedTuple):
    """One member of the population: theta + sign * sigma * noise(seed)."""

    seed: int
    sign: int


@dataclass
class Strategy:
    """Evolution Strategies (Salimans et al. 2017, section 2).

    theta: (P,) float32, the parameters, updated in place. n: perturbations per update, in mirrored
    pairs if antithetic. top_directions: use only this many pairs, those with the best better member
    (Mania et al. 2018, section 3.3); None uses all. param_fraction: the share of the parameters
    that a perturbation changes. updates: the length of lr_schedule. sum_noise: rebuilds and sums
    the noise.

    update: the number of updates so far. sigma, lr: of the next update, lr without its schedule.
    """

    theta: FloatArray
    _: KW_ONLY
    n: int
    sigma: float
    lr: float
    sigma_decay: float = 1.0
    sigma_min: float | None = None
    lr_decay: float = 1.0
    lr_schedule: str = "constant"
    updates: int = 1
    optimizer_name: str = "sgd"
    momentum: float = 0.0
    weight_decay: float = 0.0
    antithetic: bool = True
    shaping: str = "nes"
    top_directions: int | None = None
    param_fraction: float = 1.0
    seed: int = 0
    sum_noise: SumNoise = weighted_sum
    update: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.optimizer = Optimizer(
            self.optimizer_name,
            torch.from_numpy(self.theta),  # shares theta's memory
            momentum=self.momentum,
            weight_decay=self.weight_decay,
        )

    def ask(self) -> list[Perturbation]:
        """Return the n perturbations of this update; a pair's members are adjacent, + before -."""
        signs = (1, -1) if self.antithetic else (1,)
        return [Perturbation(seed, sign) for seed in self._seeds() for sign in signs]

    def scheduled_lr(self) -> float:
        """Return the learning rate of the next update."""
        return self.lr * scheduled(self.lr_schedule, self.update, self.updates)

    def tell(self, returns: npt.ArrayLike) -> float:
        """Step along the estimated gradient; return its norm.

        returns: (n,), in the order of ask(). If the gradient is 0, the optimiser is not called: its
        momentum alone would move the parameters. Raise RunError if the parameters or the
        optimiser's moments are no longer finite.
        """
        with np.errstate(all="ignore"):  # overflows are noticed below
            gradient, lr = self.gradient(returns), self.scheduled_lr()
            norm = float(np.sqrt(np.sum(gradient.astype(np.float64) ** 2)))
        if not (math.isfinite(norm) and lr <= MAX_LR):
            raise RunError(f"no step is possible: gradient norm {norm:g}, learning rate {lr:g}")
        self.optimizer.set_lr(lr)
        if norm > 0:
            self.optimizer.step(torch.from_numpy(gradient))
            if not self.optimizer.finite():
                raise RunError(
                    "parameters or optimiser are no longer finite: --lr, or the scale of the "
                    "rewards without ranks, is too high"
                )
        self.lr = _decayed(self.lr, self.lr_decay, LEAST)
        self.sigma = _decayed(self.sigma, self.sigma_decay, self.sigma_min or LEAST)
        self.update += 1
        return norm

    def gradient(self, returns: npt.ArrayLike) -> FloatArray:
        """Return 1 / (n * sigma * f) * sum of utility * sign * noise, (P,) float32.

        n: the number of perturbations used. f: param_fraction, because E[eps eps^T] = f I. The
        noise is rebuilt from the seeds and summed in a fixed order; seeds of weight 0 are skipped.
        """
        weights, count = self._weights(np.asarray(returns, dtype=np.float64))
        weighted_seeds = [pair for pair in zip(self._seeds(), weights, strict=True) if pair[1] != 0]
        gradient = self.sum_noise(weighted_seeds, self.theta.size, self.param_fraction)
        gradient *= np.float32(1 / (count * self.sigma * self.param_fraction))
        return gradient

    def _weights(self, returns: Utilities) -> tuple[Utilities, int]:
        """Return the weight of each seed's noise, and the number of perturbations used."""
        if not self.antithetic:
            if not np.ptp(returns):
                return np.zeros_like(returns), self.n
            utilities = SHAPINGS[self.shaping](returns)
            # Without this baseline, the mean utility would move theta at random.
            return utilities - utilities.mean(), self.n
        better = returns.reshape(-1, 2).max(axis=1)
        best = np.sort(np.argsort(-better, kind="stable")[: self.top_directions])
        utilities = SHAPINGS[self.shaping](returns.reshape(-1, 2)[best].reshape(-1))
        weights = np.zeros_like(better)
        weights[best] = utilities[0::2] - utilities[1::2]
        return weights, 2 * best.size

    def _seeds(self) -> list[int]:
        count = self.n // 2 if self.antithetic else self.n
        return derive_seeds(self.seed, self.update, Stream.PERTURBATION, count)


def _decayed(value: float, factor: float, least: float) -> float:
    # A value that was set below `least` stays as it is.
    return max(value * factor, min(least, value))
