"""Runs beside each other: grouped, named, summed up over seeds."""

import statistics
from pathlib import Path

import numpy as np
import pytest

from es.reports.comparison.picture import mean_line
from es.reports.comparison.runs import group_runs, load_runs
from es.reports.comparison.table import summarise
from tests.records import FALLING, RISING, a_run, groups, without_settings


def labels(*directories):
    return [each.label for each in groups(*directories)]


def summed_up(*directories):
    """The row of the only group, with returns smoothed over ten updates."""
    (only,) = groups(*directories)
    return summarise(only._replace(window=10))


def test_a_group_is_summed_up_over_its_seeds():
    first = a_run("1", RISING, {"seed": 1}, steps_per_second=[5.0] * 29 + [500.0])
    second = a_run("2", FALLING, {"seed": 2}, steps_per_second=7.0)
    row = summed_up(first, second)
    # The last ten returns are 20 to 29, and 90 to 0; the best ten, the same, and 190 to 100.
    finals, bests = (24.5, 45.0), (24.5, 145.0)
    assert (row["label"], row["seeds"]) == ("CartPole-v1", 2)
    assert (row["updates"], row["episodes"], row["frames"]) == (25, 100, 2500)
    assert row["minutes"] == pytest.approx(1.5 * 25 / 60)
    assert (row["final"], row["best"]) == (statistics.mean(finals), statistics.mean(bests))
    assert row["final_std"] == pytest.approx(statistics.stdev(finals))
    assert row["best_std"] == pytest.approx(statistics.stdev(bests))
    assert row["steps_per_second"] == 6


def test_a_short_run_is_summed_up_as_a_whole_and_alone_has_no_deviation():
    row = summed_up(a_run("a", [1.0, 2.0, 6.0]))
    assert (row["final"], row["best"], row["final_std"], row["best_std"]) == (3, 3, None, None)


def test_returns_that_are_no_numbers_are_left_out():
    returns = [np.nan, *[1.0] * 9, np.inf, 5.0]
    row = summed_up(a_run("a", returns))
    assert [row["final"], row["best"]] == pytest.approx([13 / 9, 13 / 9])


def test_runs_that_differ_in_what_changes_no_result_are_one_group():
    differing = [
        {"seed": 1, "optimizer": "adam", "workers": 3, "run_dir": "x"},
        {"seed": 2, "use_adam": True, "silent": True, "target_return": 9.0, "max_minutes": 5.0},
        {"seed": 3, "optimizer": "adam", "max_gradient_updates": 7, "small_net": False},
    ]
    runs = [a_run(str(number), settings=each) for number, each in enumerate(differing)]
    (only,) = groups(*runs)
    assert [run.directory for run in only.runs] == runs
    assert only.label == "CartPole-v1"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ([{"lr": 0.01}, {"lr": 0.5, "seed": 3}], ["lr 0.01", "lr 0.5"]),
        ([{"lr": 0.5, "n": 8}, {"lr": 0.5, "n": 20}, {"n": 20}],
         ["n 8, lr 0.5", "n 20, lr 0.5", "n 20, lr 0.1"]),
        ([{"env_name": "Acrobot-v1"}, {}], ["Acrobot-v1", "CartPole-v1"]),
        ([{"use_adam": True}, {}], ["optimizer adam", "optimizer sgd"]),
        ([{"obs_norm": True}, {}], ["obs-norm", "no obs-norm"]),
        ([{"hidden_sizes": ()}, {"hidden_sizes": (8, 4)}],
         ["hidden-sizes none", "hidden-sizes 8 4"]),
        ([{"top_directions": 3}, {}], ["top-directions 3", "top-directions default"]),
        # A schedule is laid out for the number of updates.
        ([{"lr_schedule": "linear", "max_gradient_updates": 9},
          {"lr_schedule": "linear", "max_gradient_updates": 5}],
         ["max-gradient-updates 9", "max-gradient-updates 5"]),
        # Of several tasks: what differs within each, of which it is named.
        ([{}, {"env_name": "Acrobot-v1", "n": 8}, {"env_name": "Acrobot-v1", "lr": 0.26526497}],
         ["CartPole-v1", "Acrobot-v1, n 8, lr 0.1", "Acrobot-v1, n 40, lr 0.265"]),
        ([{"lr": 0.26526497}, {"lr": 0.26528}, {}], ["lr 0.26526", "lr 0.26528", "lr 0.1"]),
        # The same game, played by one network from its memory and by the other from its screen.
        ([{"env_kwargs": ("obs_type=ram",), "hidden_sizes": (8,)},
          {"env_kwargs": ("obs_type=rgb",), "small_net": False, "vbn": True}],
         ["env-kwargs obs_type=ram, hidden-sizes 8", "env-kwargs obs_type=rgb, vbn"]),
    ],
)  # fmt: skip
def test_a_label_is_what_sets_a_group_apart(settings, expected):
    runs = [a_run(str(number), settings=each) for number, each in enumerate(settings)]
    assert labels(*runs) == expected


def test_a_run_that_branched_off_is_no_seed_of_the_other():
    first, second = a_run("a"), a_run("b", settings={"restore": "a/best.safetensors", "seed": 1})
    assert labels(first, second) == ["restore none", "restore a/best.safetensors"]


def test_the_same_seed_counts_once():
    """As of a run that was repeated, or interrupted and begun anew."""
    runs = [a_run(str(k), [1.0] * k, {"seed": seed}) for k, seed in ((3, 1), (5, 1), (4, 2))]
    told: list[str] = []
    (only,) = group_runs(load_runs(list(map(str, runs)), pytest.fail), told.append)
    assert [str(run.directory) for run in only.runs] == ["5", "4"]
    assert told == ["3: has the settings and the seed of 5, and is left out"]


def test_runs_without_settings_are_named_after_their_directories(tmp_path):
    assert labels(without_settings(".")) == [tmp_path.name]
    names = ["a/one", "a/two", "b/two"]
    runs = [without_settings(name) for name in names]
    assert labels(*runs, a_run("c")) == ["one", "a/two", "b/two", "CartPole-v1"]
    assert labels(without_settings("d/CartPole-v1"), Path("c")) == [
        "d/CartPole-v1", "CartPole-v1 (c)",
    ]  # fmt: skip


def test_folders_of_a_directory_are_runs_and_none_counts_twice():
    for name in ("sweep/2", "sweep/1", "sweep/ALE/Pong-v5"):
        without_settings(name)
    Path("sweep/notes").mkdir()
    assert labels("sweep", "sweep/1", "sweep/../sweep/2/") == ["1", "2", "Pong-v5"]


def test_the_mean_is_taken_between_points_and_where_all_runs_have_some():
    lines = [([0, 10, 40], [0, 100, 40]), ([4, 30, 90], [1, -5, 7]), ([1, 35], [3, 3])]
    at, mean, std = mean_line([(np.array(xs, float), np.array(ys, float)) for xs, ys in lines])
    assert (at[0], at[-1]) == (4, 35)
    for place, heights in ((0, (40, 1, 3)), (-1, (50, -4, 3))):
        assert mean[place] == pytest.approx(statistics.mean(heights))
        assert std[place] == pytest.approx(statistics.stdev(heights))
