"""What the learning curve shows, and what progress.csv must be for it to be drawn."""

import statistics

import numpy as np
import pytest
from matplotlib.colors import to_hex

from es.reports import plotting
from es.reports.learning_curve import draw, learning_curve
from es.reports.tables import read_progress
from tests.checkpoints import RUN
from tests.records import write_progress


@pytest.fixture
def curve(tmp_path):
    """Draws the learning curve of hand-made updates, in which `columns` are replaced."""

    def make(count, target=None, **columns):
        write_progress(tmp_path, count, **columns)
        return learning_curve(read_progress(tmp_path / "progress.csv"), "a title", target)

    return make


def lines(figure):
    return {line.get_label(): line for line in figure.axes[0].lines}


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_the_curve_has_a_title_labels_and_a_legend(curve):
    figure = curve(3)
    (axes,) = figure.axes
    (above,) = axes.child_axes
    assert axes.get_title() == "a title"
    assert axes.get_xlabel() == "episodes"
    assert axes.get_ylabel() == "return (sum of an episode's rewards)"
    assert above.get_xlabel() == "frames (steps of these episodes)"
    assert sorted(legend(figure)) == [
        "population: average", "population: min to max",
        "unperturbed", "unperturbed: mean of 2 updates",
    ]  # fmt: skip


def test_the_curve_shows_the_unperturbed_return_and_its_running_mean(curve):
    returns = [float(value**2 % 17) for value in range(60)]
    found = lines(curve(60, unperturbed_return=returns))
    raw, smooth = found["unperturbed"], found["unperturbed: mean of 10 updates"]
    means = [statistics.mean(returns[max(0, end - 10) : end]) for end in range(1, 61)]
    assert raw.get_xdata().tolist() == [4.0 * update for update in range(1, 61)]
    assert raw.get_ydata().tolist() == returns
    assert smooth.get_ydata() == pytest.approx(means)
    assert raw.get_alpha() < 0.5
    assert smooth.get_alpha() is None
    assert smooth.get_linewidth() > 2 * raw.get_linewidth()


def test_the_curve_shows_the_population(curve):
    figure = curve(5, return_mean=[1, 2, 3, 4, 5], return_max=[9, 8, 7, 8, 9], return_min=[0] * 5)
    assert lines(figure)["population: average"].get_ydata().tolist() == [1, 2, 3, 4, 5]
    (band,) = figure.axes[0].collections
    corners = {tuple(corner) for corner in band.get_paths()[0].vertices}
    assert {(4.0, 9.0), (8.0, 8.0), (12.0, 7.0), (16.0, 8.0), (20.0, 9.0)} < corners
    assert {(4.0 * update, 0.0) for update in range(1, 6)} < corners


def test_lines_can_be_told_apart_without_colours(curve):
    found = lines(curve(60, target=475.0))
    raw, smooth = found["unperturbed"], found["unperturbed: mean of 10 updates"]
    assert raw.get_linewidth() < smooth.get_linewidth()
    others = [line for line in found.values() if line is not raw]
    assert len({str(line._unscaled_dash_pattern) for line in others}) == len(others) == 3
    assert {to_hex(line.get_color()) for line in found.values()} <= set(plotting.COLOURS)


@pytest.mark.parametrize(("target", "label"), [(475.0, "solved at 475"), (-0.5, "solved at -0.5")])
def test_the_target_is_a_dashed_line(curve, target, label):
    figure = curve(60, target=target)
    line = lines(figure)[label]
    assert line.get_ydata() == [target, target]
    assert line.is_dashed()
    assert label in legend(figure)
    bottom, top = figure.axes[0].get_ylim()
    assert bottom < target < top


def test_frames_stand_above_the_episodes_in_which_they_were_played(curve):
    figure = curve(5, frames=[100, 200, 1000, 50_000, 123_456])
    figure.draw_without_rendering()
    (axes,) = figure.axes
    (above,) = axes.child_axes
    found = dict(zip(above.get_xticks(), above.get_xticklabels(), strict=True))
    known = {0: "0", 10: "600", 20: "123k"}  # between two updates, on the line from one to the next
    assert {at: found[at].get_text() for at in known} == known
    assert {text.get_text() for at, text in found.items() if not 0 <= at <= 20} <= {""}
    for at in known:
        there = above.transData.transform((at, 0))[0]
        assert there == pytest.approx(axes.transData.transform((at, 0))[0])


@pytest.mark.parametrize(
    ("count", "columns"),
    [
        (0, {}),
        (1, {}),
        (1, {"unperturbed_return": np.nan}),
        (30, {"unperturbed_return": 7.0, "return_min": 7.0, "return_max": 7.0}),
        (30, {"unperturbed_return": np.inf, "return_min": -1e308, "return_max": 1e308}),
        (30, {"frames": 0}),
        (30, {"episodes": 4}),
    ],
)
def test_odd_figures_are_drawn_without_a_warning(curve, count, columns):
    plotting.png(curve(count, target=3.0, **columns))


def test_an_update_alone_is_seen(curve):
    for line in lines(curve(1)).values():
        assert line.get_marker() == "."


def test_a_run_that_branched_off_begins_where_it_did(curve):
    assert curve(9).axes[0].get_xlim()[0] == 0
    later = {"update": range(101, 110), "episodes": range(400, 409), "frames": range(900, 909)}
    assert curve(9, **later).axes[0].get_xlim()[0] > 390


def test_long_lines_are_thinned_out_and_keep_their_peaks():
    values = np.random.default_rng(1).normal(size=100_000)
    values[[1234, 77_777]] = 50.0, -50.0
    values[500:900] = np.nan
    shown = plotting.extremes(values)
    assert len(shown) <= 2 * plotting.STRETCHES + 2
    assert {0, 1234, 77_777, 99_999} <= set(shown)
    assert (np.diff(shown) > 0).all()
    assert plotting.extremes(values[:1500]).tolist() == list(range(1500))


def test_names_are_no_formulas(tmp_path):
    write_progress(tmp_path, 3)
    draw(tmp_path, r"$\frac{$")


@pytest.mark.picture
def test_a_run_hands_its_target_to_the_picture(program):
    program.train("--target-return", 9, "--max-gradient-updates", 5)
    progress = read_progress(RUN / "progress.csv")
    with_target, without = (
        plotting.png(learning_curve(progress, "CartPole-v1", target)) for target in (9.0, None)
    )
    assert with_target != without
    assert (RUN / "learning_curve.png").read_bytes() == with_target
