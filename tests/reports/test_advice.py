"""What a run says where its figures show that it learns nothing, or what it lacks."""

import re
from typing import Any

import numpy as np
import pytest

from es.algorithm.shaping import Population, group_by_perturbation
from es.reports.advice import Advisor, after_missing_the_target
from es.reports.tables import read_progress
from tests.records import record, write_progress

EQUAL: dict[str, Any] = {"return_min": -200.0, "return_max": -200.0}


def told(records, *populations, fire=False, cap=500):
    """The advice after each of these updates."""
    advisor = Advisor(fire=fire)
    batches = populations or [UNEQUAL] * len(records)
    pairs = zip(records, batches, strict=True)
    return [[*advisor.advise(each, batch, cap)] for each, batch in pairs]


def population(returns, lengths):
    return Population(np.array(returns), np.array(returns), lengths, 0.0, 1)


UNEQUAL = population([1.0, 2.0], [9, 9])


def test_equal_returns_for_many_updates_in_a_row_are_told_once():
    equal = population([-200.0] * 2, [9] * 2)
    found = told([record(1)._replace(**EQUAL)] * 35, *[equal] * 9, UNEQUAL, *[equal] * 25)
    (at,) = (index for index, advice in enumerate(found) if advice)
    assert at == 19
    (advice,) = found[at]
    assert "(in this one -200)" in advice
    assert "--sigma (it is 0.05)" in advice


def test_equal_returns_teach_where_each_step_costs():
    shifted, equal = (
        group_by_perturbation([-200.0] * 3, [9, 10, 9], 1, reward_shift=shift)
        for shift in (0.5, 0.0)
    )
    assert not any(told([record(1)] * 20, *[shifted] * 20))
    assert any(told([record(1)] * 20, *[equal] * 20))


@pytest.mark.parametrize(
    ("returns", "lengths", "cap", "expected"),
    [
        ([0.0, 2.0], [500, 500], 500, "1 perturbation played"),
        ([0.0, 0.0], [500, 500, 500, 499], 500, "1 perturbation played"),  # of two episodes each
        ([0.0, 0.0], [27_000, 27_000], 100_000, "2 perturbations played"),
        ([0.0, 1.0], [499, 500], 500, ""),
        ([0.0, -1.0], [500, 500], 500, ""),  # a draw
    ],
)
def test_a_game_that_waits_for_fire_is_told_how_to_begin(returns, lengths, cap, expected):
    batch = population(returns, lengths)
    first, second = told([record(1)] * 2, batch, batch, fire=True, cap=cap)
    assert second == []
    assert [expected in advice and "--fire-reset" in advice for advice in first] == (
        [True] if expected else []
    )
    assert told([record(1)], batch, cap=cap) == [[]]


NOISE = np.random.default_rng(1).normal(size=40)


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"unperturbed_return": NOISE + np.arange(40)}, "still rising: carry on .*:\n  again"),
        ({"unperturbed_return": NOISE - np.arange(40)}, "falling in the end.*--lr"),
        ({"unperturbed_return": NOISE}, "rising no more.*--seed.*--sigma.*sweep.py"),
        ({"unperturbed_return": np.r_[[0.0] * 20, [np.nan] * 20]}, "rising no more"),
        ({"unperturbed_return": [np.nan] * 40}, "few updates"),
        (EQUAL, "equal: try a larger --sigma"),
    ],
)
def test_a_missed_target_is_followed_by_what_the_run_suggests(tmp_path, columns, expected):
    progress = read_progress(write_progress(tmp_path, 40, **columns))
    assert re.search(expected, after_missing_the_target(progress, "again"))
