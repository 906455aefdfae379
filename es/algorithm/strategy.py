"""The Evolution Strategy: ask() for perturbations, tell() their returns."""

import math
import secrets
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from es.algorithm.noise import (
    DoubleArray,
    FloatArray,
    Stream,
    derive_seeds,
    draw,
    perturb,
    weighted_sum,
)
from es.algorithm.optimizers import Optimizer, norm, schedule_factor
from es.algorithm.shaping import SHAPINGS, centered_ranks
from es.errors import RunError

MOST_CHANGE = 0.2  # of a parameter's sigma in one update
LEAST = 1e-30  # sigma decays to at least this; 1 / LEAST is in float32's range


class Perturbation(NamedTuple):
    """One member of the population: theta + sign * sigma * noise(seed)."""

    seed: int
    sign: int


class Strategy:
    """Evolution Strategies (Salimans et al. 2017, section 2).

    theta: (P,) float32, the parameters, updated in place. settings: an `es.config.Config`, or any
    object with its fields of the algorithm. threads: they rebuild the noise. Raise TypeError for
    parameters of another type.

    update: the number of updates so far. sigma, lr: of the next update, lr without its schedule.
    relative_sigma: (P,) float32, with --sigma-adapt: each parameter's sigma relative to `sigma`,
    with a mean square of 1.
    """

    def __init__(self, theta: FloatArray, settings: Any, *, threads: int = 1) -> None:
        if theta.dtype != np.float32:
            raise TypeError(f"theta must be float32, not {theta.dtype}")
        self.theta, self.settings, self._threads = theta, settings, threads
        self.n = self._asked = settings.n
        self.seed = secrets.randbelow(2**31) if settings.seed is None else settings.seed
        self.update, self.sigma, self.lr = 0, settings.sigma, settings.step_size
        self.relative_sigma = np.ones_like(theta) if settings.sigma_adapt else None
        self._antithetic = settings.sampling == "antithetic"
        self._shape = SHAPINGS[settings.shaping]
        self.optimizer = Optimizer(torch.from_numpy(theta), settings)  # shares theta's memory

    def ask(self, count: int | None = None) -> list[Perturbation]:
        """Return the first `count` perturbations of this update, n by default.

        A pair's members are adjacent, + before -.
        """
        signs = (1, -1) if self._antithetic else (1,)
        self._asked = count or self.n
        return [Perturbation(seed, sign) for seed in self._seeds(self._asked) for sign in signs]

    def candidates(self) -> FloatArray:
        """Return the perturbed parameters of ask(): (n, P) float32, to evaluate in this process."""
        noise, fraction = np.empty_like(self.theta), self.settings.param_fraction
        rows = np.empty((self.n, self.theta.size), np.float32)
        for (seed, sign), row in zip(self.ask(), rows, strict=True):
            draw(seed, noise, fraction)
            perturb(self.theta, noise, sign * self.sigma, row, self.relative_sigma)
        return rows

    def scheduled_lr(self) -> float:
        """Return the learning rate of the next update."""
        updates = self.settings.max_gradient_updates
        return self.lr * schedule_factor(self.settings.lr_schedule, self.update, updates)

    def tell(self, returns: npt.ArrayLike) -> float:
        """Step along the estimated gradient; return its norm.

        returns: of all perturbations that were asked for, in the order of ask(). If the gradient is
        0, the optimiser is not called: its momentum alone would move the parameters. Raise
        ValueError for another number of returns, and RunError if the parameters or the optimiser's
        moments are no longer finite.
        """
        if np.size(returns) != self._asked:
            raise ValueError(f"{np.size(returns)} returns for {self._asked} perturbations")
        with np.errstate(all="ignore"):  # overflows are noticed below
            (gradient, change), lr = self.estimate(returns), self.scheduled_lr()
            gradient_norm = norm(gradient)
        if not math.isfinite(gradient_norm):
            raise RunError(f"no step is possible: the gradient has the norm {gradient_norm:g}")
        if gradient_norm > 0:
            self.optimizer.step(torch.from_numpy(gradient), lr)
            if not self.optimizer.finite():
                raise RunError(
                    "parameters or optimiser are no longer finite: --lr, or the scale of the "
                    "rewards without ranks, is too high"
                )
            if change is not None:
                self._change_sigma(change)
        settings = self.settings
        self.lr *= settings.lr_decay
        self.sigma = max(self.sigma * settings.sigma_decay, settings.sigma_min or LEAST)
        self.update += 1
        return gradient_norm

    def estimate(self, returns: npt.ArrayLike) -> tuple[FloatArray, FloatArray | None]:
        """Return the gradient, (P,) float32, and the relative change of each parameter's sigma.

        The gradient is 1 / (n * sigma * f) * sum of utility * sign * noise. n: the number of
        perturbations used; without pairs it is one less, and the mean utility is subtracted. f:
        param_fraction, because E[eps eps^T] = f I. The noise is rebuilt from the seeds and summed
        in a fixed order; seeds of weight 0 are skipped, unless sigma adapts.

        The change is None unless sigma adapts. It is sigma_lr times the mean over pairs of
        (u - mean u) * (noise_i^2 - 1), clipped to +-MOST_CHANGE; u is the mean utility of a pair
        (Sehnke et al. 2010, section 3.3). The gradient is then multiplied by relative_sigma. That
        is PGPE's direction (section 3.2: the sum of utility times sigma_i times noise), divided by
        the mean square of all sigmas.
        """
        values = np.asarray(returns, dtype=np.float64)
        size, fraction = self.theta.size, self.settings.param_fraction
        weights, count = self._weights(values)
        seeds, change = self._seeds(values.size), None
        if self.relative_sigma is None or not weights.any():
            pairs = [pair for pair in zip(seeds, weights, strict=True) if pair[1] != 0]
            gradient = weighted_sum(pairs, size, fraction, threads=self._threads)
        else:
            advantages = self._advantages(values) / len(seeds)
            triples = list(zip(seeds, weights.tolist(), advantages.tolist(), strict=True))
            gradient, squares = weighted_sum(triples, size, fraction, threads=self._threads)
            change = (self.settings.sigma_lr * squares).clip(-MOST_CHANGE, MOST_CHANGE)
        gradient *= np.float32(1 / (count * self.sigma * fraction))
        if self.relative_sigma is not None:
            gradient *= self.relative_sigma
        return gradient, change

    def _advantages(self, returns: DoubleArray) -> DoubleArray:
        """Return each pair's mean utility minus the mean of all. The returns must not all be equal.

        The utilities are scaled to the standard deviation of the centered ranks of the same
        returns, so that sigma_lr means the same under every shaping.
        """
        utilities = self._shape(returns)
        utilities *= centered_ranks(returns).std() / utilities.std()
        means = utilities.reshape(-1, 2).mean(axis=1)
        return means - means.mean()

    def _change_sigma(self, change: FloatArray) -> None:
        """Multiply each parameter's sigma by 1 + change."""
        assert self.relative_sigma is not None
        self.relative_sigma *= 1 + change
        scale = norm(self.relative_sigma) / math.sqrt(self.theta.size)
        self.relative_sigma /= np.float32(scale)
        self.sigma *= scale

    def _weights(self, returns: DoubleArray) -> tuple[DoubleArray, int]:
        """Return the weight of each seed's noise, and the n that `estimate` divides by."""
        if not self._antithetic:
            if not np.ptp(returns):
                return np.zeros_like(returns), returns.size
            utilities = self._shape(returns)
            # Without this baseline, the mean utility would move theta at random. Each utility is in
            # the mean itself, so n - 1 makes the estimate unbiased, as in a sample's covariance.
            return utilities - utilities.mean(), returns.size - 1
        better = returns.reshape(-1, 2).max(axis=1)
        best = np.sort(np.argsort(-better, kind="stable")[: self.settings.top_directions])
        utilities = self._shape(returns.reshape(-1, 2)[best].reshape(-1))
        weights = np.zeros_like(better)
        weights[best] = utilities[0::2] - utilities[1::2]
        return weights, 2 * best.size

    def _seeds(self, perturbations: int) -> list[int]:
        count = perturbations // 2 if self._antithetic else perturbations
        return derive_seeds(self.seed, self.update, Stream.PERTURBATION, count)
