"""The Evolution Strategy: ask() for perturbations, tell() their returns."""

import math
from dataclasses import KW_ONLY, dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from es.algorithm.optimizer import Optimizer, length, scheduled
from es.algorithm.shaping import SHAPINGS, Utilities, centered_ranks
from es.errors import RunError
from es.noise import FloatArray, Stream, SumNoise, derive_seeds, weighted_sum

MAX_LR = 1e38  # float32's range
MOST_CHANGE = 0.2  # of a parameter's sigma in one update
LEAST = 1e-30  # sigma and the learning rate decay to at least this; 1 / LEAST is in that range


class Perturbation(NamedTuple):
    """One member of the population: theta + sign * sigma * noise(seed)."""

    seed: int
    sign: int


@dataclass
class Strategy:
    """Evolution Strategies (Salimans et al. 2017, section 2).

    theta: (P,) float32, the parameters, updated in place. n: perturbations per update, in mirrored
    pairs if antithetic; an update may ask for more. top_directions: use only this many pairs, those
    with the best better member (Mania et al. 2018, section 3.3); None uses all. param_fraction: the
    share of the parameters that a perturbation changes. updates: the length of lr_schedule.
    max_speed: the longest step of clipup. sum_noise: rebuilds and sums the noise.

    sigma_lr: learning rate of a sigma for each parameter; None: they share one.

    update: the number of updates so far. sigma, lr: of the next update, lr without its schedule.
    spread: (P,) float32, each parameter's sigma relative to `sigma`, with a mean square of 1.
    """

    theta: FloatArray
    _: KW_ONLY
    n: int
    sigma: float
    lr: float
    sigma_decay: float = 1.0
    sigma_min: float | None = None
    sigma_lr: float | None = None
    lr_decay: float = 1.0
    lr_schedule: str = "constant"
    updates: int = 1
    optimizer_name: str = "sgd"
    momentum: float = 0.0
    max_speed: float | None = None
    weight_decay: float = 0.0
    antithetic: bool = True
    shaping: str = "nes"
    top_directions: int | None = None
    param_fraction: float = 1.0
    seed: int = 0
    sum_noise: SumNoise = weighted_sum
    update: int = field(default=0, init=False)
    spread: FloatArray | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if self.sigma_lr is not None:
            self.spread = np.ones_like(self.theta)
        self.optimizer = Optimizer(
            self.optimizer_name,
            torch.from_numpy(self.theta),  # shares theta's memory
            momentum=self.momentum,
            max_speed=self.max_speed,
            weight_decay=self.weight_decay,
        )

    def ask(self, count: int | None = None) -> list[Perturbation]:
        """Return the first `count` perturbations of this update, n by default.

        A pair's members are adjacent, + before -.
        """
        signs = (1, -1) if self.antithetic else (1,)
        return [Perturbation(seed, sign) for seed in self._seeds(count or self.n) for sign in signs]

    def scheduled_lr(self) -> float:
        """Return the learning rate of the next update."""
        return self.lr * scheduled(self.lr_schedule, self.update, self.updates)

    def tell(self, returns: npt.ArrayLike) -> float:
        """Step along the estimated gradient; return its norm.

        returns: of all perturbations that were asked for, in the order of ask(). If the gradient is
        0, the optimiser is not called: its momentum alone would move the parameters. Raise RunError
        if the parameters or the optimiser's moments are no longer finite.
        """
        with np.errstate(all="ignore"):  # overflows are noticed below
            (gradient, change), lr = self._estimate(returns), self.scheduled_lr()
            norm = length(gradient)
        if not (math.isfinite(norm) and lr <= MAX_LR):
            raise RunError(f"no step is possible: gradient norm {norm:g}, learning rate {lr:g}")
        if norm > 0:
            self.optimizer.step(torch.from_numpy(gradient), lr)
            if not self.optimizer.finite():
                raise RunError(
                    "parameters or optimiser are no longer finite: --lr, or the scale of the "
                    "rewards without ranks, is too high"
                )
            if change is not None:
                self._change_sigma(change)
        self.lr = _decayed(self.lr, self.lr_decay, LEAST)
        self.sigma = _decayed(self.sigma, self.sigma_decay, self.sigma_min or LEAST)
        self.update += 1
        return norm

    def gradient(self, returns: npt.ArrayLike) -> FloatArray:
        """Return 1 / (n * sigma * f) * sum of utility * sign * noise, (P,) float32.

        n: the number of perturbations used. f: param_fraction, because E[eps eps^T] = f I. The
        noise is rebuilt from the seeds and summed in a fixed order; seeds of weight 0 are skipped,
        unless sigma adapts. With a sigma for each parameter, this times the spread is PGPE's
        direction (Sehnke et al. 2010, section 3.2: the sum of utility times sigma_i times noise),
        over the mean square of all sigmas.
        """
        return self._estimate(returns)[0]

    def _estimate(self, returns: npt.ArrayLike) -> tuple[FloatArray, FloatArray | None]:
        """Return the gradient, and the relative change of each parameter's sigma if these adapt.

        That change is sigma_lr times the mean over pairs of (u - mean u) * (noise_i^2 - 1), u being
        the mean utility of a pair, and MOST_CHANGE at most (Sehnke et al. 2010, section 3.3).
        """
        values, change = np.asarray(returns, dtype=np.float64), None
        (weights, count), seeds = self._weights(values), self._seeds(values.size)
        if self.sigma_lr is None or not weights.any():
            pairs = [pair for pair in zip(seeds, weights, strict=True) if pair[1] != 0]
            gradient = self.sum_noise(pairs, self.theta.size, self.param_fraction)
        else:
            advantages = self._advantages(values) / len(seeds)
            triples = list(zip(seeds, weights.tolist(), advantages.tolist(), strict=True))
            gradient, squares = self.sum_noise(triples, self.theta.size, self.param_fraction)
            change = (self.sigma_lr * squares).clip(-MOST_CHANGE, MOST_CHANGE)
        gradient *= np.float32(1 / (count * self.sigma * self.param_fraction))
        if self.spread is not None:
            gradient *= self.spread
        return gradient, change

    def _advantages(self, returns: Utilities) -> Utilities:
        """Return each pair's mean utility minus that of all; the returns are not all equal.

        The utilities are scaled to the standard deviation of the centered ranks of the same
        returns, so that sigma_lr means the same under every shaping.
        """
        utilities = SHAPINGS[self.shaping](returns)
        utilities *= centered_ranks(returns).std() / utilities.std()
        means = utilities.reshape(-1, 2).mean(axis=1)
        return means - means.mean()

    def _change_sigma(self, change: FloatArray) -> None:
        """Change each parameter's sigma by this share of it."""
        assert self.spread is not None
        self.spread *= 1 + change
        scale = length(self.spread) / math.sqrt(self.theta.size)
        self.spread /= np.float32(scale)
        self.sigma = min(max(self.sigma * scale, LEAST), 1 / LEAST)

    def _weights(self, returns: Utilities) -> tuple[Utilities, int]:
        """Return the weight of each seed's noise, and the number of perturbations used."""
        if not self.antithetic:
            if not np.ptp(returns):
                return np.zeros_like(returns), returns.size
            utilities = SHAPINGS[self.shaping](returns)
            # Without this baseline, the mean utility would move theta at random. Each utility is in
            # the mean itself, so n - 1 makes the estimate unbiased, as in a sample's covariance.
            return utilities - utilities.mean(), returns.size - 1
        better = returns.reshape(-1, 2).max(axis=1)
        best = np.sort(np.argsort(-better, kind="stable")[: self.top_directions])
        utilities = SHAPINGS[self.shaping](returns.reshape(-1, 2)[best].reshape(-1))
        weights = np.zeros_like(better)
        weights[best] = utilities[0::2] - utilities[1::2]
        return weights, 2 * best.size

    def _seeds(self, perturbations: int) -> list[int]:
        count = perturbations // 2 if self.antithetic else perturbations
        return derive_seeds(self.seed, self.update, Stream.PERTURBATION, count)


def _decayed(value: float, factor: float, least: float) -> float:
    # A value that was set below `least` stays as it is.
    return max(value * factor, min(least, value))
