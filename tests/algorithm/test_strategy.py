import copy

import numpy as np
import pytest

from es.algorithm.shaping import SHAPINGS
from es.algorithm.strategy import Strategy
from es.errors import RunError
from es.noise import draw
from tests.algorithm.formulas import RETURNS, SIZE, brute_force_direction, noise_of, theta
from tests.checkpoints import same


def test_ask_pairs_each_seed_with_both_signs_and_never_repeats_one():
    strategy = Strategy(theta(), n=6, sigma=0.1, lr=0.1, seed=3)
    first = strategy.ask()
    assert [member.sign for member in first] == [1, -1] * 3
    assert all(plus.seed == minus.seed for plus, minus in zip(first[::2], first[1::2], strict=True))
    strategy.tell([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    assert len({member.seed for member in first + strategy.ask()}) == 6


def test_sgd_steps_along_the_brute_force_sum():
    strategy = Strategy(theta(), n=8, sigma=0.05, lr=0.1, lr_decay=0.5, seed=11)
    expected = theta().astype(np.float64)
    for update in range(3):
        returns = [float(value) for value in np.random.default_rng(update).permutation(8)]
        direction = brute_force_direction(strategy, returns)
        expected += 0.1 * 0.5**update * direction
        norm = strategy.tell(returns)
        assert norm == pytest.approx(np.linalg.norm(direction), rel=1e-5)
        np.testing.assert_allclose(strategy.theta, expected, rtol=1e-5, atol=1e-6)
    assert strategy.update == 3


def test_adam_steps_along_the_brute_force_sum():
    """Against Adam (Kingma and Ba 2015, algorithm 1) written out in float64."""
    strategy = Strategy(
        theta(), n=8, sigma=0.05, lr=0.02, lr_decay=0.9, optimizer_name="adam", seed=11
    )
    expected = theta().astype(np.float64)
    first, second = np.zeros(SIZE), np.zeros(SIZE)
    for update in range(4):
        returns = [float(value) for value in np.random.default_rng(update).permutation(8)]
        gradient = -brute_force_direction(strategy, returns)
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        step = (first / (1 - 0.9 ** (update + 1))) / (
            np.sqrt(second / (1 - 0.999 ** (update + 1))) + 1e-8
        )
        expected -= 0.02 * 0.9**update * step
        strategy.tell(returns)
        np.testing.assert_allclose(strategy.theta, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shaping", SHAPINGS)
@pytest.mark.parametrize("antithetic", [True, False])
def test_gradient_is_the_brute_force_sum_of_shaped_returns(shaping, antithetic):
    strategy = Strategy(
        theta(), n=8, sigma=0.05, lr=0.1, seed=3, shaping=shaping, antithetic=antithetic
    )
    utilities = SHAPINGS[shaping](RETURNS)
    if not antithetic:
        assert len({member.seed for member in strategy.ask()}) == 8
        assert {member.sign for member in strategy.ask()} == {1}
        others = [np.delete(utilities, i).mean() for i in range(8)]
        utilities = utilities - others  # a baseline that a member is not part of itself
    expected = utilities @ noise_of(strategy) / (8 * 0.05)
    np.testing.assert_allclose(strategy.gradient(RETURNS), expected, rtol=1e-4, atol=1e-5)


def test_top_directions_are_augmented_random_search():
    """Mania et al. 2018, algorithm 2: 1/(b sigma_R) sum of (r+ - r-) eps over the b best pairs."""
    strategy = Strategy(
        theta(), n=8, sigma=0.05, lr=0.1, seed=3, shaping="normalized", top_directions=2
    )
    eps = noise_of(strategy)[0::2]
    used = np.array([3.0, -1.0, 4.0, 4.5])  # whose better members are 3 and 4.5; then 2 and -6
    direction = ((3.0 - -1.0) * eps[0] + (4.0 - 4.5) * eps[1]) / (2 * used.std())
    expected = direction / (2 * 0.05)  # our step is lr / (2 b sigma)
    np.testing.assert_allclose(strategy.gradient(RETURNS), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("antithetic", [True, False])
def test_a_fraction_of_the_parameters_gives_the_same_gradient_on_average(antithetic):
    """That of a linear function, which every estimate has right but for the noise in it."""
    slope = np.linspace(-1, 1, SIZE)
    strategy = Strategy(
        theta(), n=20_000, sigma=0.1, lr=0.1, shaping="raw", param_fraction=0.3,
        antithetic=antithetic,
    )  # fmt: skip
    returns = []
    for member in strategy.ask():
        noise = draw(member.seed, np.empty(SIZE, np.float32), 0.3)
        returns.append(float(slope @ (strategy.theta + member.sign * 0.1 * noise)))
    estimate = strategy.gradient(returns)
    assert abs(estimate - slope).max() < 0.25
    assert estimate @ slope / (slope @ slope) == pytest.approx(1, abs=0.05)


def test_gradient_points_uphill_on_a_quadratic():
    """The best of -|theta - goal|^2 lies in the direction of goal - theta."""
    goal = np.random.default_rng(0).normal(size=SIZE)
    strategy = Strategy(theta(), n=2000, sigma=0.01, lr=0.1, seed=5)
    returns = []
    for member in strategy.ask():
        noise = draw(member.seed, np.empty(SIZE, np.float32)).astype(np.float64)
        played = strategy.theta + member.sign * strategy.sigma * noise
        returns.append(-float(np.sum((played - goal) ** 2)))
    estimate, uphill = strategy.gradient(returns), goal - strategy.theta
    cosine = estimate @ uphill / np.linalg.norm(estimate) / np.linalg.norm(uphill)
    assert cosine > 0.95


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_a_batch_without_signal_changes_nothing_but_the_count(optimizer):
    strategy = Strategy(
        theta(), n=4, sigma=0.1, lr=0.1, lr_decay=0.5, optimizer_name=optimizer, weight_decay=0.1
    )
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
    strategy = Strategy(theta(), n=7, sigma=0.1, lr=0.1, antithetic=False, shaping=shaping)
    assert strategy.tell([-20.1] * 7) == 0


def test_a_pair_with_equal_returns_contributes_nothing():
    strategy = Strategy(theta(), n=4, sigma=0.1, lr=0.1, seed=2)
    noise = draw(strategy.ask()[2].seed, np.empty(SIZE, np.float32))
    gradient = strategy.gradient([5.0, 5.0, 9.0, 1.0])
    cosine = gradient @ noise / np.linalg.norm(gradient) / np.linalg.norm(noise)
    assert cosine == pytest.approx(1, abs=1e-6)


def test_parameters_that_leave_the_range_of_numbers_stop_the_run():
    strategy = Strategy(theta(), n=2, sigma=1.0, lr=1e30, lr_decay=1e20)

    def play() -> None:
        for _ in range(5):
            strategy.tell([1.0, 2.0])

    with pytest.raises(RunError, match=r"finite|possible"):
        play()


def test_moments_that_leave_the_range_of_numbers_stop_the_run():
    """The squares of such a gradient do, while the parameters stay where they are."""
    strategy = Strategy(theta(), n=2, sigma=1.0, lr=0.1, optimizer_name="adam", shaping="raw")
    with pytest.raises(RunError, match="no longer finite"):
        strategy.tell([1e25, 0.0])
    assert np.isfinite(strategy.theta).all()
