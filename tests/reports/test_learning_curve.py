"""What the learning curve shows, and what progress.csv must be for it to be drawn."""

import statistics
from itertools import pairwise

import numpy as np
import pytest
from matplotlib.colors import to_hex

from es.reports import plotting
from es.reports.learning_curve import draw, learning_curve
from es.reports.progress_csv import read_progress, running_mean
from tests.conftest import RUN
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


def test_without_a_target_there_is_no_such_line(curve):
    assert not [label for label in lines(curve(60)) if label.startswith("target")]


def test_frames_stand_above_the_episodes_in_which_they_were_played(curve):
    frames = [100, 200, 1000, 5000, 5100]
    figure = curve(5, frames=frames)
    figure.draw_without_rendering()
    (axes,) = figure.axes
    (above,) = axes.child_axes
    for episodes, count in zip((4, 8, 12, 16, 20), frames, strict=True):
        there = above.transData.transform((count, 0))[0]
        assert there == pytest.approx(axes.transData.transform((episodes, 0))[0])


@pytest.mark.parametrize("lengths", [[1] * 90 + [1000] * 10, [1000] * 10 + [1] * 90])
def test_labels_of_frames_do_not_lie_upon_each_other(curve, lengths):
    """Where nearly all of them were played in a few episodes."""
    figure = curve(100, frames=np.cumsum(lengths))
    figure.draw_without_rendering()
    (above,) = figure.axes[0].child_axes
    labels = [label for label in above.get_xticklabels() if label.get_text()]
    boxes = [label.get_window_extent() for label in labels]
    assert len(boxes) >= 2
    assert all(left.x1 < right.x0 for left, right in pairwise(boxes))


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


def test_means_leave_out_what_is_no_number_and_keep_their_digits():
    values = np.array([1.0, np.nan, 3.0, np.nan, np.nan, np.nan, 1e140, 5.0, 6.0, 7.0])
    means = running_mean(values, 3)
    expected = [1.0, 1.0, 2.0, 3.0, 3.0, np.nan, 1e140, 5e139, 1e140 / 3, 6.0]
    assert means == pytest.approx(expected, nan_ok=True)


def test_a_line_that_is_being_written_is_left_out(tmp_path):
    path = write_progress(tmp_path, 3)
    with path.open("a") as file:
        file.write("4,16,40")
    assert read_progress(path)["update"].tolist() == [1, 2, 3]


def test_a_table_that_windows_has_written_is_read(tmp_path):
    path = write_progress(tmp_path, 3)
    expected = read_progress(path)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    found = read_progress(path)
    assert {name: found[name].tolist() for name in found} == {
        name: expected[name].tolist() for name in expected
    }


def test_names_are_no_formulas(tmp_path):
    write_progress(tmp_path, 3)
    draw(tmp_path, r"$\frac{")
    figure, (axes,) = plotting.new_figure(["$x$"], "", "")
    axes.plot([1, 2], label=plotting.literal("_a"))
    plotting.add_legend(figure, columns=1)
    assert axes.get_title() == r"\$x\$"
    assert [text.strip() for text in legend(figure)] == ["_a"]


@pytest.mark.picture
def test_a_run_hands_its_target_to_the_picture(program):
    program.train("--target-return", 9, "--max-gradient-updates", 5)
    progress = read_progress(RUN / "progress.csv")
    with_target, without = (
        plotting.png(learning_curve(progress, "CartPole-v1", target)) for target in (9.0, None)
    )
    assert with_target != without
    assert (RUN / "learning_curve.png").read_bytes() == with_target
