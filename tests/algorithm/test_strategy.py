import copy
from typing import Any

import numpy as np
import pytest

from es.algorithm.shaping import SHAPINGS
from es.algorithm.strategy import Strategy
from es.config import Config
from es.errors import RunError
from tests.algorithm.formulas import RETURNS, SIZE, make, noise_of, theta
from tests.checkpoints import same


def test_ask_pairs_each_seed_with_both_signs_and_never_repeats_one():
    strategy = make(n=6, sigma=0.1, lr=0.1, seed=3)
    first = strategy.ask()
    assert [member.sign for member in first] == [1, -1] * 3
    assert all(plus.seed == minus.seed for plus, minus in zip(first[::2], first[1::2], strict=True))
    strategy.tell([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    assert len({member.seed for member in first + strategy.ask()}) == 6


def test_another_number_of_returns_is_refused():
    strategy = make(n=6, sigma=0.1)
    with pytest.raises(ValueError, match="4 returns for 6 perturbations"):
        strategy.tell([1.0, 2.0, 3.0, 4.0])
    strategy.ask(8)
    strategy.tell(range(8))


def test_parameters_of_another_type_are_refused():
    theta: Any = np.zeros(3)
    with pytest.raises(TypeError, match="float32, not float64"):
        Strategy(theta, Config(n=4))


def test_without_a_seed_it_draws_one():
    one, other = make(n=6, sigma=0.1, seed=None), make(n=6, sigma=0.1, seed=None)
    assert one.ask() != other.ask()


def test_candidates_are_theta_and_the_noise_of_ask():
    strategy = make(n=6, sigma=0.1, sigma_adapt=True)
    strategy.relative_sigma = np.linspace(0.5, 1.5, SIZE, dtype=np.float32)
    expected = theta() + 0.1 * np.linspace(0.5, 1.5, SIZE) * noise_of(strategy)
    np.testing.assert_allclose(strategy.candidates(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shaping", SHAPINGS)
@pytest.mark.parametrize("sampling", ["antithetic", "gaussian"])
def test_gradient_is_the_brute_force_sum_of_shaped_returns(shaping, sampling):
    strategy = make(n=8, sigma=0.05, lr=0.1, seed=3, shaping=shaping, sampling=sampling)
    utilities = SHAPINGS[shaping](RETURNS)
    if sampling == "gaussian":
        assert len({member.seed for member in strategy.ask()}) == 8
        assert {member.sign for member in strategy.ask()} == {1}
        others = [np.delete(utilities, i).mean() for i in range(8)]
        utilities = utilities - others  # a baseline that a member is not part of itself
    expected = utilities @ noise_of(strategy) / (8 * 0.05)
    np.testing.assert_allclose(strategy.estimate(RETURNS)[0], expected, rtol=1e-4, atol=1e-5)


def test_top_directions_are_augmented_random_search():
    """Mania et al. 2018, algorithm 2: 1/(b sigma_R) sum of (r+ - r-) eps over the b best pairs."""
    strategy = make(n=8, sigma=0.05, lr=0.1, seed=3, shaping="normalized", top_directions=2)
    eps = noise_of(strategy)[0::2]
    used = np.array([3.0, -1.0, 4.0, 4.5])  # whose better members are 3 and 4.5; then 2 and -6
    direction = ((3.0 - -1.0) * eps[0] + (4.0 - 4.5) * eps[1]) / (2 * used.std())
    expected = direction / (2 * 0.05)  # our step is lr / (2 b sigma)
    np.testing.assert_allclose(strategy.estimate(RETURNS)[0], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("sampling", ["antithetic", "gaussian"])
def test_a_fraction_of_the_parameters_gives_the_same_gradient_on_average(sampling):
    """That of a linear function, which every estimate has right but for the noise in it."""
    slope = np.linspace(-1, 1, SIZE)
    strategy = make(n=20_000, sigma=0.1, lr=0.1, shaping="raw", param_fraction=0.3,
        sampling=sampling,
    )  # fmt: skip
    returns = strategy.candidates() @ slope
    estimate = strategy.estimate(returns)[0]
    assert abs(estimate - slope).max() < 0.25
    assert estimate @ slope / (slope @ slope) == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_a_batch_without_signal_changes_nothing_but_the_count(optimizer):
    strategy = make(n=4, sigma=0.1, lr=0.1, lr_decay=0.5, optimizer=optimizer, weight_decay=0.1)
    strategy.tell([1.0, 2.0, 3.0, 4.0])  # gives Adam a momentum that could move theta
    before = strategy.theta.copy()
    moments = copy.deepcopy(strategy.optimizer.moments)
    for returns in ([0.1] * 4, [1.0, 1.0, 7.0, 7.0]):
        assert strategy.tell(returns) == 0
        assert np.array_equal(strategy.theta, before)
    assert same(strategy.optimizer.moments, moments)
    assert strategy.update == 3
    assert strategy.lr == pytest.approx(0.1 * 0.5**3)


@pytest.mark.parametrize("shaping", SHAPINGS)
def test_equal_returns_tell_nothing_without_pairs_either(shaping):
    strategy = make(n=7, sigma=0.1, lr=0.1, sampling="gaussian", shaping=shaping)
    assert strategy.tell([-20.1] * 7) == 0


def test_a_gradient_that_leaves_the_range_of_numbers_stops_the_run():
    strategy = make(n=2, sigma=1.0, lr=0.1, shaping="raw")
    with pytest.raises(RunError, match="no step is possible"):
        strategy.tell([1e300, -1e300])
    assert np.isfinite(strategy.theta).all()


def test_moments_that_leave_the_range_of_numbers_stop_the_run():
    """The squares of such a gradient do, while the parameters stay where they are."""
    strategy = make(n=2, sigma=1.0, lr=0.1, optimizer="adam", shaping="raw")
    with pytest.raises(RunError, match="no longer finite"):
        strategy.tell([1e25, 0.0])
    assert np.isfinite(strategy.theta).all()


@pytest.mark.parametrize("shaping", SHAPINGS)
def test_sigmas_adapt_by_the_brute_force_formulas_of_pgpe(shaping):
    """Sehnke et al. 2010, section 3.3: mirrored, with the mean utility as the baseline.

    Sigmas change by utilities that are as far apart as centered ranks, parameters by all others.
    """
    settings = {"shaping": shaping, "sigma_adapt": True, "sigma_lr": 1.0}
    strategy = make(n=8, sigma=0.05, lr=0.1, seed=3, **settings)
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
        assert strategy.relative_sigma is not None
        np.testing.assert_allclose(strategy.sigma * strategy.relative_sigma, sigmas, rtol=1e-5)
        np.testing.assert_allclose(strategy.theta, expected, rtol=1e-4, atol=1e-5)
        assert np.mean(strategy.relative_sigma.astype(np.float64) ** 2) == pytest.approx(1)
