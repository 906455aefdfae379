import math

import numpy as np
import pytest

from es.algorithm.population import group_by_perturbation, grown, mean_and_std
from es.algorithm.shaping import SHAPINGS
from es.errors import RunError
from tests.fakes import results

RESULTS = results([1.0, 3.0, 4.0, 8.0, 5.0, 6.0], range(0, 60, 10))


def test_one_episode_for_each_perturbation():
    batch = group_by_perturbation(RESULTS, 1)
    assert batch.returns.tolist() == batch.fitness.tolist() == [1, 3, 4, 8, 5]
    assert batch.lengths == [0, 10, 20, 30, 40]
    assert batch.unperturbed == 6


def test_the_mean_of_several_episodes():
    batch = group_by_perturbation(RESULTS, 2)
    assert batch.returns.tolist() == [2, 6]
    assert batch.lengths == [0, 10, 20, 30]
    assert batch.unperturbed == 5.5


def test_a_shift_of_rewards_counts_every_step_and_leaves_the_returns_alone():
    batch = group_by_perturbation(RESULTS, 2, reward_shift=0.1)
    assert batch.returns.tolist() == [2, 6]
    assert batch.fitness.tolist() == pytest.approx([(1 + 2) / 2, (2 + 5) / 2])
    assert batch.unperturbed == 5.5


def test_clipped_rewards_are_learned_from_and_leave_the_returns_alone():
    clipped = RESULTS.copy()
    clipped["clipped_return"] = range(0, 12, 2)
    batch = group_by_perturbation(clipped, 2, reward_shift=0.1)
    assert batch.returns.tolist() == [2, 6]
    assert batch.fitness.tolist() == pytest.approx([1 - 0.5, 5 - 2.5])
    assert batch.unperturbed == 5.5


def test_returns_that_are_no_numbers_rank_last():
    batch = group_by_perturbation(results([1.0, math.nan, -3.0, math.inf, 2.0, -math.inf, 0.0]), 1)
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
        batch = group_by_perturbation(results([1.0, 2.0, 3.0, math.nan, math.inf, unperturbed]), 1)
        assert batch.rank == rank


def test_one_episode_that_is_no_number_spoils_the_mean():
    returns = [1.0, math.nan, math.inf, -math.inf, 5.0, 5.0, 1.0, 1.0]
    batch = group_by_perturbation(results(returns), 2)
    assert np.isnan(batch.returns).tolist() == [True, True, False]
    assert (batch.fitness < 5).tolist() == [True, True, False]


def test_the_lowest_of_numbers_still_is_finite():
    lowest = float(np.finfo(float).min)
    batch = group_by_perturbation(results([lowest, math.nan, 0.0]), 1)
    assert batch.fitness.tolist() == [lowest, lowest]


def test_no_number_at_all_is_an_error():
    with pytest.raises(RunError, match="none of 2 returns is a finite number: nan"):
        group_by_perturbation(results([math.nan, math.inf, 1.0]), 1)


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
    assert grown(count, steps, wanted=1000, most=100) == expected


def test_mean_and_standard_deviation_of_what_is_no_number():
    assert mean_and_std([1.0, 3.0]) == (2.0, 1.0)
    for wrong in (math.nan, math.inf):
        assert all(map(math.isnan, mean_and_std([1.0, wrong, -math.inf])))
