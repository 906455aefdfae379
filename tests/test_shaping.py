import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from es.shaping import nes_utilities, ranks

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


@given(RETURNS)
def test_utilities_sum_to_two_and_follow_the_returns(returns):
    utilities = nes_utilities(returns)
    assert utilities.sum() == pytest.approx(2)
    for i, first in enumerate(returns):
        for j, second in enumerate(returns):
            if first == second:
                assert utilities[i] == utilities[j]
            if first > second:
                assert utilities[i] >= utilities[j]


def test_equal_returns_give_equal_utilities():
    assert np.ptp(nes_utilities([-21.0] * 40)) == 0
