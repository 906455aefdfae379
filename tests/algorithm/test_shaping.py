import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from es.algorithm.shaping import SHAPINGS, centered_ranks, nes_utilities, normalized, ranks, raw

RETURNS = st.lists(st.integers(-5, 5).map(float), min_size=2, max_size=30)


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


def test_raw_returns_are_themselves():
    assert raw([3.0, -1.0]).tolist() == [3, -1]


@given(RETURNS)
def test_nes_utilities_sum_to_two(returns):
    assert nes_utilities(returns).sum() == pytest.approx(2)


@given(RETURNS, st.sampled_from(sorted(SHAPINGS)))
def test_utilities_follow_the_returns(returns, shaping):
    utilities = SHAPINGS[shaping](returns)
    for i, first in enumerate(returns):
        for j, second in enumerate(returns):
            if first == second:
                assert utilities[i] == utilities[j]
            if first > second:
                assert utilities[i] >= utilities[j]


@pytest.mark.parametrize("shaping", SHAPINGS)
def test_equal_returns_give_equal_utilities(shaping):
    assert np.ptp(SHAPINGS[shaping]([-20.1] * 40)) == 0
