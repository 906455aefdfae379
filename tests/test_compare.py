"""Runs on one picture and in one table."""

import csv
import statistics
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from compare import By, main
from es.comparison import picture
from es.comparison.runs import group, load
from es.comparison.summary import spread, summarise
from es.config import Config
from es.config.sources import write_toml
from es.monitor import plotting
from es.monitor.progress import read_progress
from tests.conftest import run_python
from tests.records import write_progress

RISING = [float(value) for value in range(30)]
FALLING = [10.0 * value for value in reversed(range(20))]


@pytest.fixture
def compare(capfd):
    """Status, standard output and standard error of a command line."""

    def run(*arguments):
        capfd.readouterr()
        status = main([str(argument) for argument in arguments])
        return status, *capfd.readouterr()

    return run


def a_run(name, returns=(1.0, 2.0), settings=None, **columns):
    """A run's directory, of CartPole unless the settings say otherwise."""
    directory = Path(name)
    write_progress(directory, len(returns), unperturbed_return=returns, **columns)
    config = Config(**{"env_name": "CartPole-v1", "small_net": True} | (settings or {}))
    (directory / "config.toml").write_text(write_toml(config.saved()))
    return directory


def without_settings(name, returns=(1.0, 2.0), **columns):
    directory = a_run(name, returns, **columns)
    (directory / "config.toml").unlink()
    return directory


def groups(*directories):
    return group(load([str(directory) for directory in directories], warn=pytest.fail))


def labels(*directories):
    return [each.label for each in groups(*directories)]


def test_a_group_is_summed_up_over_its_seeds():
    first = a_run("1", RISING, {"seed": 1}, steps_per_second=[5.0] * 29 + [500.0])
    second = a_run("2", FALLING, {"seed": 2}, steps_per_second=7.0)
    (row,) = map(summarise, groups(first, second))
    # The last ten returns are 20 to 29, and 90 to 0; the best ten, the same, and 190 to 100.
    finals, bests = (24.5, 45.0), (24.5, 145.0)
    assert (row.label, row.seeds) == ("CartPole-v1", 2)
    assert (row.updates, row.episodes, row.frames) == (25, 100, 2500)
    assert row.minutes == pytest.approx(1.5 * 25 / 60)
    assert (row.final, row.best) == (statistics.mean(finals), statistics.mean(bests))
    assert row.final_std == pytest.approx(statistics.stdev(finals))
    assert row.best_std == pytest.approx(statistics.stdev(bests))
    assert row.steps_per_second == 6


def test_a_short_run_is_summed_up_as_a_whole_and_alone_has_no_deviation():
    (row,) = map(summarise, groups(a_run("a", [1.0, 2.0, 6.0])))
    assert (row.final, row.best, row.final_std, row.best_std) == (3, 3, None, None)


def test_returns_that_are_no_numbers_are_left_out():
    returns = [np.nan, *[1.0] * 9, np.inf, 5.0]
    (row,) = map(summarise, groups(a_run("a", returns)))
    assert [row.final, row.best] == pytest.approx([13 / 9, 13 / 9])


def test_runs_that_differ_in_what_changes_no_result_are_one_group():
    differing = [
        {"seed": 1, "optimizer": "adam", "workers": 3, "run_dir": "x"},
        {"seed": 2, "use_adam": True, "silent": True, "target_return": 9.0, "max_minutes": 5.0},
        {"seed": 2, "optimizer": "adam", "max_gradient_updates": 7, "restore": "y.pth"},
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
    ],
)  # fmt: skip
def test_a_label_is_what_sets_a_group_apart(settings, expected):
    runs = [a_run(str(number), settings=each) for number, each in enumerate(settings)]
    assert labels(*runs) == expected


def test_runs_without_settings_are_named_after_their_directories(tmp_path):
    assert labels(without_settings(".")) == [tmp_path.name]
    names = ["a/one", "a/two", "b/two"]
    runs = [without_settings(name) for name in names]
    assert labels(*runs, a_run("c")) == ["one", "a/two", "b/two", "CartPole-v1"]


def test_folders_of_a_directory_are_runs_and_none_counts_twice():
    for name in ("sweep/2", "sweep/1", "sweep/ALE/Pong-v5"):
        without_settings(name)
    Path("sweep/notes").mkdir()
    assert labels("sweep", "sweep/1", "sweep/../sweep/2/") == ["1", "2", "Pong-v5"]


def test_the_mean_is_taken_between_points_and_where_all_runs_have_some():
    def height(at, xs, ys):
        """Of a line between its points, written out."""
        for (left, low), (right, high) in zip(
            zip(xs, ys, strict=True), zip(xs[1:], ys[1:], strict=True), strict=False
        ):
            if left <= at <= right:
                return low + (high - low) * (at - left) / (right - left)
        raise AssertionError

    lines = [([0, 10, 40], [0, 100, 40]), ([4, 7, 30, 90], [1, -5, 50, 9]), ([1, 35], [3, 3])]
    found = spread([(np.array(xs, float), np.array(ys, float)) for xs, ys in lines])
    assert (found.at[0], found.at[-1]) == (4, 35)
    heights = [[height(at, *line) for line in lines] for at in found.at]
    assert found.mean == pytest.approx([statistics.mean(each) for each in heights])
    assert found.std == pytest.approx([statistics.stdev(each) for each in heights])


def drawn(by, *directories):
    """The axes, the lines by label and the entries of the legend."""
    figure = picture.compare(groups(*directories), by)
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
    assert "± 1 standard deviation" in legend.get_title().get_text()
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
    assert ("solved: 9" in entries) is shown
    if shown:
        assert lines["solved: 9"].get_ydata() == [9, 9]
        assert lines["solved: 9"].is_dashed()


def test_many_groups_stay_apart():
    runs = [a_run(f"{number}", settings={"n": 2 * number}) for number in range(1, 31)]
    axes, lines, entries, _ = drawn("frames", *runs)
    assert len(entries) == 30
    looks = {(line.get_color(), str(line._unscaled_dash_pattern)) for line in lines.values()}
    assert len(looks) == 30
    axes.figure.draw_without_rendering()
    assert axes.get_window_extent().height > 300  # pixels, beside the long legend


def test_the_files_and_the_table(compare):
    for number in (1, 2):
        a_run(f"{number}", RISING, {"seed": number})
    a_run("3", FALLING, {"lr": 0.5})
    without_settings("a|b [red]")
    status, out, err = compare(
        "1", "2", "3", "a|b [red]", "--by", "episodes", "--output", "out/c.png"
    )
    assert (status, err) == (0, "")
    assert sorted(path.name for path in Path("out").iterdir()) == ["c.csv", "c.md", "c.png"]
    runs = groups("1", "2", "3", "a|b [red]")
    assert Path("out/c.png").read_bytes() == plotting.png(picture.compare(runs, "episodes"))
    with Path("out/c.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["label"] for row in rows] == ["lr 0.1", "lr 0.5", "a|b [red]"]
    for row, each in zip(rows, runs, strict=True):
        for name, value in summarise(each)._asdict().items():
            assert row[name] == ("" if value is None else str(value))
    markdown = Path("out/c.md").read_text()
    assert (
        "| lr 0.1 | 2 | 30 | 120 | 3,000 | 0.75 | 24.50 ± 0.00 | 24.50 ± 0.00 | 1,000 |" in markdown
    )
    assert "| a\\|b [red] | 1 | 2 |" in markdown
    for words in ("lr 0.1", "24.50 ± 0.00", "a|b [red]", "Written: out/c.png, out/c.csv, out/c.md"):
        assert words in out


def test_outputs_of_before_are_replaced(compare):
    without_settings("a", [1.0] * 9)
    for value in (1.0, 8.0):
        without_settings("a", [value] * 9)
        assert compare("a")[0] == 0
        assert f"| {value:.2f} |" in Path("comparison.md").read_text()
    assert sorted(path.name for path in Path().iterdir()) == [
        "a", "comparison.csv", "comparison.md", "comparison.png",
    ]  # fmt: skip


def test_real_runs_are_compared(compare, program):
    for seed in (1, 2):
        run = ("--seed", seed, "--max-gradient-updates", 3, "--run-dir", f"runs/{seed}")
        program.train(*run)
    status, _, err = compare("runs")
    assert (status, err) == (0, "")
    with Path("comparison.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    returns = [
        read_progress(Path(f"runs/{seed}/progress.csv"))["unperturbed_return"] for seed in (1, 2)
    ]
    assert float(row["final"]) == pytest.approx(np.mean(returns))
    assert (row["label"], row["seeds"], row["updates"]) == ("CartPole-v1", "2", "3.0")


def test_a_run_in_a_folder_that_has_just_begun_is_left_out(compare):
    a_run("runs/1")
    a_run("runs/2", [])
    status, out, err = compare("runs")
    assert status == 0
    assert err == "warning: runs/2: has not finished an update yet, and is left out\n"
    assert "CartPole-v1 │     1 │" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("", "RUN_DIR: is missing"),
        ("nowhere", "RUN_DIR nowhere: there is no such directory"),
        ("x" * 300, "cannot be read (File name too long)"),
        ("file", "RUN_DIR file: is no directory"),
        ("folder", "RUN_DIR folder: there is no progress.csv in it"),
        ("foreign", "RUN_DIR foreign/progress.csv: is no table of a run (it has no column update)"),
        ("torn", "RUN_DIR torn/progress.csv: is no table of a run ("),
        ("bytes", "RUN_DIR bytes/progress.csv: is no table of a run ("),
        ("falling", "is no table of a run (episodes falls from one row to the next"),
        ("empty", "RUN_DIR empty: has not finished an update yet"),
        ("settings", "RUN_DIR settings/config.toml: is not valid TOML"),
        ("good nowhere", "RUN_DIR nowhere: there is no such directory"),
        ("good --by hours", "--by hours: must be 'frames' or 'episodes' or 'minutes'"),
        ("good --bye", "--bye: there is no such flag; did you mean --by?"),
        ("good --by frames good", "good --by frames good: cannot be read"),
        ("good --output", "--output: a string must follow"),
        ("good --output=", "--output : must be the name of files"),
        ("good --output file/out", "--output file/out: cannot be written ("),
    ],
)
def test_a_mistake_is_one_line_and_nothing_is_written(compare, arguments, words):
    Path("file").write_text("")
    Path("folder").mkdir()
    a_run("good")
    a_run("empty", [])
    a_run("falling", episodes=[8, 4])
    a_run("foreign").joinpath("progress.csv").write_text("a,b\n1,2\n")
    a_run("bytes").joinpath("progress.csv").write_bytes(b"\xff\xfe")
    with a_run("torn").joinpath("progress.csv").open("a") as file:
        file.write("3,12\n")
    a_run("settings").joinpath("config.toml").write_text("lr = [")
    before = sorted(Path().rglob("*"))
    status, out, err = compare(*arguments.split())
    assert (status, out) == (2, "")
    assert err.startswith("error: ")
    assert words in err
    assert err.count("\n") == 1
    assert sorted(Path().rglob("*")) == before


def test_help_is_light():
    program = (
        "import sys; from compare import main\n"
        "try: main(['--help'])\n"
        "finally: print(sorted({'matplotlib', 'numpy', 'torch'} & set(sys.modules)))"
    )
    result = run_python(program)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.endswith("[]\n")
    for word in ("RUN_DIR", "--by", "--output", *get_args(By)):
        assert word in result.stdout
