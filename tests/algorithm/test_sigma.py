"""Sigma that decays, and sigmas that adapt."""

from unittest.mock import Mock

import numpy as np
import pytest

from es import noise
from es.algorithm.shaping import SHAPINGS
from es.algorithm.strategy import Strategy
from es.noise import weighted_sum
from tests.algorithm.formulas import RETURNS, SIZE, brute_force_direction, noise_of, theta


@pytest.mark.parametrize("shaping", SHAPINGS)
def test_sigmas_adapt_by_the_brute_force_formulas_of_pgpe(shaping):
    """Sehnke et al. 2010, section 3.3: mirrored, with the mean utility as the baseline.

    Sigmas change by utilities that are as far apart as centered ranks, parameters by all others.
    """
    strategy = Strategy(theta(), n=8, sigma=0.05, lr=0.1, seed=3, shaping=shaping, sigma_lr=1.0)
    sigmas, expected = np.full(SIZE, 0.05), theta().astype(np.float64)
    for _ in range(3):
        drawn, utilities = noise_of(strategy), SHAPINGS[shaping](RETURNS)
        direction = sum(u * sigmas * eps for u, eps in zip(utilities, drawn, strict=True)) / 8
        expected += 0.1 * direction / np.mean(sigmas**2)
        utilities = utilities / utilities.std() * np.arange(8).std() / 7
        gradient = np.zeros(SIZE)
        for pair in range(4):
            advantage = (utilities[2 * pair] + utilities[2 * pair + 1]) / 2 - utilities.mean()
            gradient += advantage * sigmas * (drawn[2 * pair] ** 2 - 1) / 4
        step = np.clip(gradient, -0.2 * sigmas, 0.2 * sigmas)
        assert 0 < np.sum(step != gradient) < SIZE
        sigmas += step
        strategy.tell(RETURNS)
        assert strategy.spread is not None
        np.testing.assert_allclose(strategy.sigma * strategy.spread, sigmas, rtol=1e-5)
        np.testing.assert_allclose(strategy.theta, expected, rtol=1e-4, atol=1e-5)
        assert np.mean(strategy.spread.astype(np.float64) ** 2) == pytest.approx(1)


def test_one_pass_over_the_noise_gives_the_step_and_the_sigmas(monkeypatch):
    """By the sum that the strategy is given, which has threads or a cluster."""
    draws, sum_noise = Mock(side_effect=noise.draw), Mock(side_effect=weighted_sum)
    strategy = Strategy(theta(), n=8, sigma=0.05, lr=0.1, sigma_lr=1.0, sum_noise=sum_noise)
    monkeypatch.setattr(noise, "draw", draws)
    strategy.tell(RETURNS)
    assert (sum_noise.call_count, draws.call_count) == (1, 4)
    assert strategy.spread is not None
    assert strategy.spread.std() > 0


def test_the_largest_returns_leave_sigmas_in_the_range_of_numbers():
    for largest in (1e39, 1e200, 1.7e308):
        strategy = Strategy(theta(), n=6, sigma=1.0, lr=1e-30, shaping="raw", sigma_lr=1e30)
        strategy.tell([2.0, 1.0, largest, largest, -largest, -largest])
        assert strategy.spread is not None
        assert np.isfinite(strategy.spread).all()
        assert 0.5 < strategy.sigma < 2


def test_sigma_decays_down_to_its_limit():
    strategy = Strategy(theta(), n=4, sigma=0.1, sigma_decay=0.5, sigma_min=0.02, lr=0.1)
    found = []
    for _ in range(5):
        found.append(strategy.sigma)
        returns = [1.0, 4.0, 2.0, 3.0]
        expected = brute_force_direction(strategy, returns)
        np.testing.assert_allclose(strategy.gradient(returns), expected, rtol=1e-4, atol=1e-5)
        strategy.tell(returns)
    assert found == [0.1, 0.05, 0.025, 0.02, 0.02]
