"""The picture of runs beside each other."""

import statistics

import numpy as np
import pytest

from es.reports.comparison.picture import draw_comparison
from es.reports.comparison.table import summarise
from tests.records import (
    FALLING,
    RISING,
    a_run,
    evaluation,
    files_of,
    groups,
    without_settings,
    write,
)


def drawn(by, *directories):
    """The axes, the lines by label and the entries of the legend."""
    figure = draw_comparison(groups(*directories), by)
    (axes,), (legend,) = figure.axes, figure.legends
    entries = [text.get_text() for text in legend.get_texts()]
    return axes, {line.get_label(): line for line in axes.lines}, entries, legend


@pytest.mark.parametrize(
    ("by", "label", "last"),
    [("frames", "frames (steps of training episodes)", 2000),
     ("episodes", "training episodes", 80),
     ("minutes", "wall-clock time (minutes)", 0.5)],
)  # fmt: skip
def test_the_picture_has_a_line_and_a_band_per_group(by, label, last):
    runs = [a_run("1", FALLING, {"seed": 1}), a_run("2", RISING, {"seed": 2})]
    alone = a_run("3", [7.0] * 20, {"lr": 0.5})
    axes, lines, entries, legend = drawn(by, *runs, alone)
    assert entries == ["lr 0.1 (2 seeds)", "lr 0.5"]
    # With a run of 20 updates and one of 30, also in time and frames.
    assert legend.get_title().get_text() == (
        "mean over seeds, as far as all have come; band: ± 1 standard deviation; pale: single runs"
    )
    assert axes.get_title() == "CartPole-v1"
    assert axes.get_xlabel() == label
    assert axes.get_ylabel() == "unperturbed return (mean of 4 updates)"
    mean = lines["lr 0.1 (2 seeds)"]
    assert mean.get_xdata()[-1] == pytest.approx(last)
    # The means of 30, 20, 10, 0 and of 16, 17, 18, 19.
    assert mean.get_ydata()[[0, -1]] == pytest.approx([(190 + 0) / 2, (15 + 17.5) / 2])
    (band,) = axes.collections
    top = max(y for x, y in band.get_paths()[0].vertices if x == mean.get_xdata()[-1])
    assert top == pytest.approx((15 + 17.5) / 2 + statistics.stdev([15, 17.5]))
    pale = [line for line in axes.lines if line.get_alpha() is not None]
    assert [len(line.get_xdata()) for line in pale] == [20, 30]  # all the way
    assert {line.get_color() for line in pale} == {mean.get_color()}


def test_evaluations_are_points_where_there_are_some():
    directory = a_run("1", RISING)
    files = files_of(directory, 30)
    write(files, evaluation(20), evaluation(30))
    files.close()
    axes, lines, _, legend = drawn("frames", directory, a_run("2", RISING, {"lr": 0.5}))
    assert legend.get_title().get_text() == "points: evaluations of single runs"
    (points,) = (line for line in axes.lines if line.get_marker() == "o")
    assert points.get_color() == lines["lr 0.1"].get_color()
    assert [*zip(*points.get_data(), strict=True)] == [(2000, 21), (3000, 31)]


def test_each_environment_has_axes_of_its_own():
    other = {"env_name": "Acrobot-v1", "target_return": -80.0}
    runs = [a_run("1", FALLING), a_run("2", RISING, other), a_run("3", RISING, other | {"seed": 2})]
    figure = draw_comparison(groups(*runs), "frames")
    first, second = figure.axes
    assert (first.get_title(), second.get_title()) == ("CartPole-v1", "Acrobot-v1")
    assert [line.get_label() for line in first.lines] == ["CartPole-v1"]
    for axes, window in ((first, 4), (second, 6)):
        assert axes.get_ylabel() == f"unperturbed return (mean of {window} updates)"
    heights = {line.get_label(): np.asarray(line.get_ydata()).tolist() for line in second.lines}
    assert heights["Acrobot-v1 (2 seeds)"][-1] == pytest.approx(statistics.mean(RISING[-6:]))
    # A target is named where it is one.
    assert [text.get_text() for axes in figure.axes for text in axes.texts] == ["solved at -80"]
    assert [text.get_text() for text in second.texts] == ["solved at -80"]
    assert [-80, -80] in heights.values()
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "CartPole-v1", "Acrobot-v1 (2 seeds)",
    ]  # fmt: skip


@pytest.mark.parametrize(("count", "columns"), [(3, 1), (7, 3)])
def test_many_environments_lie_in_a_grid(count, columns):
    names = [f"a_module_of_mine.environments:Game{number}-v0" for number in range(count)]
    runs = [a_run(f"{number}", settings={"env_name": name}) for number, name in enumerate(names)]
    figure = draw_comparison(groups(*runs), "frames")
    assert [axes.get_title() for axes in figure.axes] == names
    cells = [cell for axes in figure.axes if (cell := axes.get_subplotspec())]
    assert [(cell.rowspan.start, cell.colspan.start) for cell in cells] == [
        divmod(number, columns) for number in range(count)
    ]
    width, height = figure.get_size_inches()
    assert width == 8 if columns == 1 else 0.5 < width / height < 2
    (legend,) = figure.legends
    assert legend.get_window_extent().width <= figure.bbox.width


def test_the_table_says_what_the_picture_shows():
    """However short the runs are, and however quickly they learn."""
    learning = [10.0, 100.0, 400.0, 500.0, 500.0, 500.0, 480.0]
    runs = groups(a_run("1", learning, {"seed": 1}), a_run("2", learning[:-1], {"seed": 2}))
    pale = draw_comparison(runs, "episodes").axes[0].lines[:2]
    ends = [float(np.asarray(line.get_ydata())[-1]) for line in pale]
    assert summarise(runs[0])["final"] == pytest.approx(statistics.mean(ends))
    assert ends == [490.0, 500.0]


def test_runs_that_have_nothing_in_common_are_drawn_alone():
    runs = [
        a_run("1", [1.0] * 9, {"seed": 1}),
        a_run("2", [2.0] * 9, {"seed": 2}, frames=range(5000, 5009)),
    ]
    axes, lines, entries, _ = drawn("frames", *runs)
    assert entries == ["CartPole-v1 (2 seeds)"]
    assert not len(lines["CartPole-v1 (2 seeds)"].get_xdata())
    assert len(axes.lines) == 3


@pytest.mark.parametrize(("targets", "shown"), [((9.0, 9.0), True), ((9.0, 8.0), False)])
def test_a_target_that_all_runs_have_is_a_dashed_line(targets, shown):
    runs = [a_run(f"{each}", settings={"target_return": target, "lr": each})
            for each, target in zip((1.0, 2.0), targets, strict=True)]  # fmt: skip
    _, lines, entries, _ = drawn("frames", *runs)
    assert ("solved at 9" in entries) is shown
    if shown:
        assert lines["solved at 9"].get_ydata() == [9, 9]
        assert lines["solved at 9"].is_dashed()


def test_nothing_is_said_of_a_mean_that_goes_nearly_to_the_end():
    runs = [a_run(f"{last}", settings={"seed": last}, frames=[5, last]) for last in (1000, 1005)]
    legend = drawn("frames", *runs)[3]
    assert legend.get_title().get_text().startswith("mean over seeds; band")


def test_the_legend_is_never_wider_than_the_picture():
    words = "$a_" + "/Wide文" * 30 + " and$ so on" * 9
    runs = [a_run(f"{number}", settings={"restore": f"{words}{number}"}) for number in (1, 2)]
    axes, _, entries, legend = drawn("frames", *runs)
    figure = axes.figure
    figure.draw_without_rendering()
    assert 0.7 * figure.bbox.width < legend.get_window_extent().width <= figure.bbox.width
    assert axes.get_window_extent().height > 450  # pixels, beside the long legend
    labels = [each.label for each in groups(*runs)]
    assert labels == [f"restore {words}1", f"restore {words}2"]
    for label, entry in zip(labels, entries, strict=True):  # wrapped, and whole
        assert "".join(entry.split()) == "".join(label.split())


def test_a_run_whose_name_begins_with_an_underscore_is_in_the_legend():
    _, _, entries, _ = drawn("frames", without_settings("_old"), without_settings("$new$"))
    assert entries == [" _old", "$new$"]


def test_many_groups_stay_apart():
    runs = [a_run(f"{number}", settings={"n": 2 * number}) for number in range(1, 31)]
    axes, lines, entries, _ = drawn("frames", *runs)
    assert len(entries) == 30
    looks = {(line.get_color(), str(line._unscaled_dash_pattern)) for line in lines.values()}
    assert len(looks) == 30
    axes.figure.draw_without_rendering()
    assert axes.get_window_extent().height > 300  # pixels, beside the long legend
