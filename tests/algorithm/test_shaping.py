import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from es.algorithm.shaping import (
    SHAPINGS,
    adaptive_cap,
    centered_ranks,
    group_by_perturbation,
    mean_and_std,
    nes_utilities,
    normalized,
    perturbations_needed,
    ranks,
    variable_cap,
)
from es.errors import RunError

RETURNS = st.lists(st.integers(-5, 5).map(float), min_size=2, max_size=30)


@settings(deadline=None)  # the machine may be busy
@given(RETURNS)
def test_ranks_against_counting(returns):
    """A tied group takes places better+1 .. better+equal, and shares their mean."""
    for value, rank in zip(returns, ranks(returns), strict=True):
        better = sum(other > value for other in returns)
        equal = sum(other == value for other in returns)
        assert rank == better + (equal + 1) / 2


def test_utilities_against_the_formula():
    returns = [3.0, -1.0, 10.0, 4.0, 2.0, 0.0]
    places = [3, 6, 1, 2, 4, 5]
    raw = [max(0.0, math.log2(6 / 2 + 1) - math.log2(place)) for place in places]
    expected = [value / sum(raw) + 1 / 6 for value in raw]
    assert nes_utilities(returns) == pytest.approx(expected, rel=1e-12)


def test_centered_ranks_against_counting():
    """From -0.5 for the worst to 0.5 for the best; the two 4s share places 2 and 3 of 5."""
    assert centered_ranks([3.0, -1.0, 10.0, 4.0, 4.0]).tolist() == pytest.approx(
        [-0.25, -0.5, 0.5, 0.125, 0.125]
    )


@settings(deadline=None)  # the machine may be busy
@given(RETURNS)
def test_normalized_returns_have_mean_0_and_deviation_1(returns):
    utilities = normalized(returns)
    if len(set(returns)) > 1:
        mean = sum(returns) / len(returns)
        deviation = math.sqrt(sum((value - mean) ** 2 for value in returns) / len(returns))
        expected = [(value - mean) / deviation for value in returns]
        assert utilities == pytest.approx(expected)
    else:
        assert not utilities.any()


@settings(deadline=None)  # the machine may be busy
@given(RETURNS, st.sampled_from(sorted(SHAPINGS)))
def test_utilities_follow_the_returns(returns, shaping):
    utilities = SHAPINGS[shaping](returns)
    for i, first in enumerate(returns):
        for j, second in enumerate(returns):
            if first == second:
                assert utilities[i] == utilities[j]
            if first > second:
                assert utilities[i] >= utilities[j]


PLAYED = [1.0, 3.0, 4.0, 8.0, 5.0, 6.0]
STEPS = [0, 10, 20, 30, 40, 50]


def test_episodes_are_grouped_by_perturbation():
    batch = group_by_perturbation(PLAYED, STEPS, 1)
    assert batch.returns.tolist() == batch.fitness.tolist() == [1, 3, 4, 8, 5]
    assert batch.lengths == [0, 10, 20, 30, 40]
    assert batch.unperturbed == 6


@pytest.mark.parametrize(
    ("learned", "fitness"),
    [
        ({}, [2, 6]),
        ({"reward_shift": 0.1}, [(1 + 2) / 2, (2 + 5) / 2]),
        ({"clipped": [0, 2, 4, 6, 8, 10], "reward_shift": 0.1}, [1 - 0.5, 5 - 2.5]),
    ],
)
def test_clipped_and_shifted_rewards_are_learned_from_and_leave_the_returns_alone(learned, fitness):
    batch = group_by_perturbation(PLAYED, STEPS, 2, **learned)
    assert batch.fitness.tolist() == pytest.approx(fitness)
    assert batch.returns.tolist() == [2, 6]
    assert batch.lengths == [0, 10, 20, 30]
    assert batch.unperturbed == 5.5


def group(returns, episodes=1):
    return group_by_perturbation(returns, [1] * len(returns), episodes)


def test_returns_that_are_no_numbers_rank_last():
    batch = group([1.0, math.nan, -3.0, math.inf, 2.0, -math.inf, 0.0])
    assert np.isfinite(batch.fitness).all()
    assert np.array_equal(batch.returns, [1, math.nan, -3, math.inf, 2, -math.inf], equal_nan=True)
    expected = [1.0, -3.1, -3.0, -3.1, 2.0, -3.1]
    for name in ("nes", "centered-rank"):
        assert SHAPINGS[name](batch.fitness) == pytest.approx(SHAPINGS[name](expected))
    for name in ("raw", "normalized"):
        as_the_worst = [1.0, -3.0, -3.0, -3.0, 2.0, -3.0]
        assert SHAPINGS[name](batch.fitness) == pytest.approx(SHAPINGS[name](as_the_worst))


def test_the_rank_counts_those_that_are_better():
    ranks = {4.0: 1, 3.0: 1, 2.5: 2, 0.0: 4, math.nan: 6, math.inf: 6}
    for unperturbed, rank in ranks.items():
        batch = group([1.0, 2.0, 3.0, math.nan, math.inf, unperturbed])
        assert batch.unperturbed_rank == rank


def test_one_episode_that_is_no_number_spoils_the_mean():
    returns = [1.0, math.nan, math.inf, -math.inf, 5.0, 5.0, 1.0, 1.0]
    batch = group(returns, 2)
    assert np.isnan(batch.returns).tolist() == [True, True, False]
    assert (batch.fitness < 5).tolist() == [True, True, False]


def test_an_infinite_return_is_the_worst_even_if_its_rewards_are_clipped():
    returns = [math.inf, -math.inf, 1.0, 1.0]
    batch = group_by_perturbation(returns, [1] * 4, 1, clipped=[9.0, 2.0, 1.0, 1.0])
    assert batch.fitness[2] == 1
    assert (batch.fitness[:2] < 1).all()


def test_no_number_at_all_is_an_error():
    with pytest.raises(RunError, match="none of 2 returns is a finite number: nan"):
        group([math.nan, math.inf, 1.0])
    with pytest.raises(RunError, match="none of 2 returns is a finite number: inf"):
        group_by_perturbation([math.inf, math.inf, 1.0], [1, 1, 1], 1, clipped=[1.0, 2.0, 1.0])


@pytest.mark.parametrize(
    ("count", "steps", "expected"),
    [
        (10, 1000, 10),  # enough
        (10, 500, 20),  # as many again, if they last as long
        (10, 700, 16),  # 4.3 more, in whole pairs
        (80, 990, 90),  # an eighth at the least
        (10, 10, 100),  # at most
        (100, 10, 100),
    ],
)
def test_an_update_grows_until_it_has_seen_enough_steps(count, steps, expected):
    assert perturbations_needed(count, steps, wanted=1000, most=100) == expected


def test_mean_and_standard_deviation_of_what_is_no_number():
    assert mean_and_std([1.0, 3.0]) == (2.0, 1.0)
    for wrong in (math.nan, math.inf):
        assert all(map(math.isnan, mean_and_std([1.0, wrong, -math.inf])))


def test_the_variable_cap_is_twice_the_mean_of_the_batch():
    assert variable_cap([3, 4, 8], most=100) == 10
    assert variable_cap([3, 4, 8], most=7) == 7
    assert variable_cap([0], most=100) == 1


def test_the_adaptive_cap_is_twice_the_mean_so_far():
    assert adaptive_cap([10, 20, 30], 1000, mean=25.4, most=5000) == 50
    assert adaptive_cap([10, 20, 30], 1000, mean=4000, most=5000) == 5000
    assert adaptive_cap([1], 1000, mean=0.2, most=5000) == 1


def test_the_adaptive_cap_grows_when_more_than_a_quarter_reach_it():
    assert adaptive_cap([40, 40, 10, 10], 40, mean=15, most=5000) == 60
    assert adaptive_cap([40, 10, 10, 10], 40, mean=15, most=5000) == 30
    assert adaptive_cap([40, 40, 40, 40], 40, mean=50, most=5000) == 100
    assert adaptive_cap([40, 40, 40, 40], 40, mean=15, most=50) == 50
