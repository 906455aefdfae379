"""The learning curve of a run, and the process that draws it."""

import statistics
import struct

import numpy as np
import pytest

from es.reports import plot
from es.reports.plot import Curve, learning_curve, mean_line, read_table, running_mean
from tests.processes import wait_until
from tests.records import a_run, write_progress


def test_means_leave_out_what_is_not_finite_and_keep_their_digits():
    values = np.array([1.0, np.nan, 3.0, np.nan, np.inf, np.nan, 1e140, 5.0, 6.0, 7.0])
    means = running_mean(values, 3)
    expected = [1.0, 1.0, 2.0, 3.0, 3.0, np.nan, 1e140, 5e139, 1e140 / 3, 6.0]
    assert means == pytest.approx(expected, nan_ok=True)


def test_the_mean_line_is_taken_between_points_and_where_all_runs_have_some():
    lines = [([0, 10, 40], [0, 100, 40]), ([4, 30, 90], [1, -5, 7]), ([1, 35], [3, 3])]
    at, mean, std = mean_line([(np.array(xs, float), np.array(ys, float)) for xs, ys in lines])
    assert (at[0], at[-1]) == (4, 35)
    for place, heights in ((0, (40, 1, 3)), (-1, (50, -4, 3))):
        assert mean[place] == pytest.approx(statistics.mean(heights))
        assert std[place] == pytest.approx(statistics.stdev(heights))


def test_what_is_no_table_is_a_value_error(tmp_path):
    path = write_progress(tmp_path, 3)
    whole = path.read_text()
    for text in ("", "a,b\n1,2\n", f"{whole}x,1\n"):
        path.write_text(text)
        with pytest.raises(ValueError, match=r"column|string"):
            read_table(path)


@pytest.fixture
def drawn(tmp_path):
    """Draws the learning curve of updates, in which `columns` are replaced: its figure, lines."""

    def make(count, target=None, **columns):
        table = read_table(write_progress(tmp_path, count, **columns))
        figure = learning_curve(table, r"$\frac{$", target)  # a name is no formula
        figure.draw_without_rendering()
        return figure, {line.get_label(): line for line in figure.axes[0].lines}

    return make


def test_the_curve_shows_the_policy_and_the_population(drawn):
    returns = [float(value**2 % 17) for value in range(60)]
    columns = {"return_mean": range(60), "return_max": 90, "return_min": -9}
    figure, lines = drawn(60, target=475.0, unperturbed_return=returns, **columns)
    raw, smooth = figure.axes[0].lines[1], lines["unperturbed: mean of 10 updates (pale: each one)"]
    means = [statistics.mean(returns[max(0, end - 10) : end]) for end in range(1, 61)]
    assert raw.get_xdata().tolist() == [4.0 * update for update in range(1, 61)]
    assert raw.get_ydata().tolist() == returns
    assert smooth.get_ydata() == pytest.approx(means)
    assert smooth.get_linewidth() > 2 * raw.get_linewidth()
    population = lines["population: average"]
    assert population.get_ydata().tolist() == list(range(60))
    assert population.is_dashed() != smooth.is_dashed()
    assert population.get_color() != smooth.get_color() == raw.get_color()
    (band,) = figure.axes[0].collections
    corners = {tuple(corner) for corner in band.get_paths()[0].vertices}
    assert {(4.0, 90.0), (8.0, 90.0), (4.0, -9.0)} < corners
    (axes,), (legend,) = figure.axes, figure.legends
    assert axes.lines[-1].get_ydata() == [475.0, 475.0]
    assert [text.get_text() for text in axes.texts] == ["solved at 475"]
    assert len(legend.get_texts()) == 3
    assert axes.get_xlabel() == "episodes"


def test_frames_stand_above_the_episodes_in_which_they_were_played(drawn):
    figure, _ = drawn(5, frames=[100, 200, 1000, 50_000, 123_456])
    (above,) = figure.axes[0].child_axes
    labels = [label.get_text() for label in above.get_xticklabels()]
    found = dict(zip(above.get_xticks(), labels, strict=True))
    assert (found[10], found[20]) == ("600", "123k")  # the first is between two updates


@pytest.mark.parametrize(
    ("count", "columns"),
    [
        (0, {}),
        (1, {"unperturbed_return": np.nan, "frames": 0}),
        (30, {"unperturbed_return": 7.0, "return_min": 7.0, "return_max": 7.0, "episodes": 4}),
        (30, {"unperturbed_return": np.inf, "return_min": -1e100, "return_max": 1e100}),
    ],
)
def test_odd_figures_are_drawn_without_a_warning(tmp_path, drawn, count, columns):
    figure, _ = drawn(count, target=3.0, **columns)
    plot.save(figure, tmp_path / "a.png")


@pytest.mark.picture
def test_the_process_draws_the_last_state_at_the_end_even_if_interrupted(tmp_path, monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "nonsense")  # as from a notebook of another environment
    monkeypatch.setattr(plot, "HURRIED_SECONDS", 600.0)
    a_run(tmp_path, [1.0, 2.0, 3.0], {"target_return": 9.0})
    curve = Curve(tmp_path)
    curve.request()  # too soon for a picture
    assert not (tmp_path / "learning_curve.png").exists()
    assert curve.close(lambda: True) == ""
    picture = (tmp_path / "learning_curve.png").read_bytes()
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", picture[16:24])
    assert 900 < width < 1000
    assert 560 < height < 800
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.picture
def test_a_process_that_has_died_is_started_again(tmp_path, monkeypatch):
    monkeypatch.setattr(plot, "REDRAW_SECONDS", 0)
    a_run(tmp_path)
    curve = Curve(tmp_path)
    first = curve._helper
    assert first
    first.kill()
    first.wait()
    curve.request()
    assert curve._helper is not first
    wait_until((tmp_path / "learning_curve.png").exists)
    assert curve.close(lambda: False) == ""


@pytest.mark.picture
def test_why_there_is_no_picture_is_told(tmp_path, monkeypatch):
    a_run(tmp_path)
    (tmp_path / "progress.csv").write_text("damaged\n")
    curve = Curve(tmp_path)
    curve.request()
    assert curve.close(lambda: False) == "ValueError: it has no column update"
    monkeypatch.setattr(plot, "HURRIED_SECONDS", 0.0)
    curve = Curve(tmp_path)
    curve.request()
    assert curve.close(lambda: True) == "it was not drawn in time"
    assert Curve(tmp_path).close(lambda: False) == ""  # nothing was requested
