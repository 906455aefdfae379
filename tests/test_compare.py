"""Several runs in one picture and in one table."""

import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from es.compare import draw, group_runs, load_runs, main, summarise
from es.reports import plot
from tests.checkpoints import rows
from tests.records import FALLING, RISING, a_run, write_progress


@pytest.fixture
def compare(capfd):
    """Status, standard output and standard error of a command line."""

    def run(*arguments):
        capfd.readouterr()
        status = main([str(argument) for argument in arguments])
        return status, *capfd.readouterr()

    return run


def groups(*directories):
    return group_runs(load_runs(directories))


def labels(*directories):
    return [each.label for each in groups(*directories)]


def test_the_files_and_the_table(compare):
    for number in (1, 2):
        a_run(f"runs/{number}", RISING, {"seed": number})
    a_run("runs/3", FALLING, {"lr": 0.5})
    status, out, err = compare("runs", "runs/1", "--by", "episodes", "--output", "out/c.png")
    assert (status, err) == (0, "")
    assert sorted(path.name for path in Path("out").iterdir()) == ["c.csv", "c.md", "c.png"]
    found = rows(Path("out"), "c.csv")
    assert [(row["group"], row["seeds"]) for row in found] == [("--lr 0.1", "2"), ("--lr 0.5", "1")]
    line = "| --lr 0.1 | 2 | 30 | 120 | 3,000 | 0.75 | 26.50 | 0 | 26.50 | 0 | 1,000 |\n"
    for words in (line, "the last 6 updates", "Written: out/c.png, out/c.csv, out/c.md"):
        assert words in out
    text, picture = Path("out/c.md").read_text().splitlines(), "![learning curves](<c.png>)"
    assert text == [*out.splitlines()[:-1], picture]
    compare("runs", "--output", "folder/")
    assert Path("folder/comparison.png").exists()


def test_a_group_is_summed_up_over_its_seeds():
    a_run("1", RISING, {"seed": 1}, steps_per_second=[5.0] * 29 + [500.0])
    a_run("2", FALLING, {"seed": 2}, steps_per_second=7.0)
    (only,) = groups("1", "2")
    row = summarise(only, 10)
    # The last ten returns are 20 to 29, and 90 to 0; the best ten, the same, and 190 to 100.
    finals, bests = (24.5, 45.0), (24.5, 145.0)
    assert (row["group"], row["seeds"]) == ("CartPole-v1", 2)
    assert (row["updates"], row["episodes"], row["frames"]) == (25, 100, 2500)
    assert row["minutes"] == pytest.approx(1.5 * 25 / 60)
    assert (row["final"], row["best"]) == (statistics.mean(finals), statistics.mean(bests))
    assert row["final_std"] == pytest.approx(statistics.stdev(finals))
    assert row["best_std"] == pytest.approx(statistics.stdev(bests))
    assert row["steps_per_second"] == 6


def test_a_seed_counts_once(capfd):
    for name, returns in (("a", [1.0]), ("b", [1.0, 2.0]), ("c", [1.0])):
        a_run(f"runs/{name}", returns, {"seed": 4 if name != "c" else 5})
    (only,) = groups("runs")
    assert [run.directory.name for run in only.runs] == ["b", "c"]
    warning = "warning: runs/a: has the seed and algorithm of runs/b. It is left out.\n"
    assert capfd.readouterr().err == warning


def test_a_run_alone_has_no_deviation_and_leaves_out_what_is_not_finite():
    (short,) = groups(a_run("a", [1.0, 2.0, 6.0]))
    row = summarise(short, 10)
    assert (row["final"], row["best"], row["final_std"], row["best_std"]) == (3, 3, None, None)
    (odd,) = groups(a_run("b", [np.nan, *[1.0] * 9, np.inf, 5.0]))
    row = summarise(odd, 10)
    assert [row["final"], row["best"]] == pytest.approx([13 / 9, 13 / 9])


def test_runs_that_differ_in_what_changes_no_result_are_one_group():
    differing = [
        {"seed": 1, "optimizer": "adam", "workers": 3, "run_dir": "x"},
        {"seed": 2, "optimizer": "adam", "silent": True, "target_return": 9.0, "max_minutes": 5.0},
        {"seed": 3, "optimizer": "adam", "max_gradient_updates": 7, "small_net": False},
    ]
    runs = [a_run(str(number), settings=each) for number, each in enumerate(differing)]
    (only,) = groups(*runs)
    assert [str(run.directory) for run in only.runs] == runs
    assert only.label == "CartPole-v1"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ([{"lr": 0.5, "n": 8}, {"lr": 0.5, "n": 20, "seed": 3}, {"n": 20}],
         ["--n 8 --lr 0.5", "--n 20 --lr 0.5", "--n 20 --lr 0.1"]),
        ([{"optimizer": "adam", "obs_norm": True}, {}],
         ["--obs-norm --optimizer adam", "--optimizer sgd"]),
        ([{"hidden_sizes": ()}, {"hidden_sizes": (8, 4)}],
         ["--hidden-sizes", "--hidden-sizes 8 4"]),
        # A schedule depends on the number of updates.
        ([{"lr_schedule": "linear", "max_gradient_updates": 9},
          {"lr_schedule": "linear", "max_gradient_updates": 5}],
         ["--max-gradient-updates 9", "--max-gradient-updates 5"]),
        # Of several environments: what differs within each.
        ([{}, {"env_name": "Acrobot-v1", "n": 8}, {"env_name": "Acrobot-v1", "lr": 0.26526497}],
         ["CartPole-v1", "Acrobot-v1 --n 8 --lr 0.1", "Acrobot-v1 --n 40 --lr 0.26526497"]),
        ([{}, {"env_kwargs": ("g=1",), "reward_clip": (-1.0, 1.0)}],
         ["CartPole-v1", "--env-kwargs g=1 --reward-clip -1.0 1.0"]),
        ([{}, {"sticky_actions": 0.0}],
         ["CartPole-v1", "--sticky-actions 0.0"]),
        ([{}, {"restore": "a/best.safetensors"}],
         ["CartPole-v1", "--restore a/best.safetensors"]),
        ([{"phase": ({"after_updates": 2, "lr": 0.01},)},
          {"phase": ({"after_updates": 2, "lr": 0.02},)}],
         ["[[phase]]", "[[phase]] #2"]),
    ],
)  # fmt: skip
def test_a_label_is_what_sets_a_group_apart(settings, expected):
    runs = [a_run(str(number), settings=each) for number, each in enumerate(settings)]
    assert labels(*runs) == expected


@pytest.mark.parametrize(
    ("by", "label", "last"),
    [("frames", "frames (steps of training episodes)", 2000),
     ("episodes", "training episodes", 80),
     ("minutes", "wall-clock time (minutes)", 0.5)],
)  # fmt: skip
def test_the_picture_has_a_line_and_a_band_per_group(by, label, last):
    a_run("1", FALLING, {"seed": 1, "target_return": 9.0})
    a_run("2", RISING, {"seed": 2, "target_return": 9.0})
    a_run("3", [7.0] * 20, {"lr": 0.5, "target_return": 9.0})
    figure: Any = draw(groups("1", "2", "3"), by, 4)
    (axes,), (legend,) = figure.axes, figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["--lr 0.1 (2 seeds)", "--lr 0.5"]
    assert (axes.get_title(), axes.get_xlabel()) == ("CartPole-v1", label)
    (mean,) = [line for line in axes.lines if line.get_label() == "--lr 0.1 (2 seeds)"]
    assert mean.get_xdata()[-1] == pytest.approx(last)
    # The means of 30, 20, 10, 0 and of 16, 17, 18, 19.
    assert mean.get_ydata()[[0, -1]] == pytest.approx([(190 + 0) / 2, (15 + 17.5) / 2])
    (band,) = axes.collections
    spread = statistics.stdev([190.0, 0.0])
    assert band.get_paths()[0].vertices[:, 1].max() == pytest.approx(95 + spread)
    pale = [line for line in axes.lines if line.get_alpha()]
    assert [line.get_xdata().size for line in pale] == [20, 30]
    assert [text.get_text() for text in axes.texts] == ["solved at 9"]


def test_each_environment_has_axes_of_its_own(tmp_path):
    names = ("Acrobot-v1", "CartPole-v1", "Pendulum-v1")
    runs = [a_run(name, settings={"env_name": name}) for name in names]
    figure = draw(groups(*runs), "frames", 2)
    assert [axes.get_title() for axes in figure.axes] == list(names)
    plot.save(figure, tmp_path / "a.png")


def test_folders_of_a_directory_are_runs_and_what_cannot_be_read_is_left_out(compare):
    for seed, name in enumerate(("sweep/1", "sweep/ALE/Pong-v5")):
        a_run(name, settings={"seed": seed})
    for name, text in (("no-table", "a,b\n"), ("binary", "\0\n"), ("new", None)):
        path = write_progress(Path("sweep", name), 0)
        if text:
            path.write_text(text)
    status, _, err = compare("sweep", "sweep/../sweep/1/", "swep")
    assert status == 0
    assert err.count("\n") == err.count(". It is left out.") == 4
    assert "swep: holds no run" in err
    assert "sweep/new: cannot be read (it has not finished an update yet)" in err
    assert "CartPole-v1,2," in Path("comparison.csv").read_text()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("nowhere",), "RUN_DIR nowhere: holds no run. Give the directory of a run, such as"),
        (("a", "--by", "weeks"), "--by"),
        (("a", "--output", "a/progress.csv/x"), "--output a/progress.csv/x: cannot be written ("),
    ],
)
def test_mistakes_are_one_line(compare, arguments, told):
    a_run("a")
    status, out, err = compare(*arguments)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("error: ")
    assert told in err
