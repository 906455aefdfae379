"""Runs on one picture and in one table."""

import csv
import errno
import os
import signal
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from es.compare import By, main
from es.reports import plotting
from es.reports.comparison.picture import draw_comparison
from es.reports.comparison.table import summarise
from es.reports.tables import read_progress
from tests.processes import run_python
from tests.records import FALLING, RISING, a_run, groups, without_settings


@pytest.fixture
def compare(capfd):
    """Status, standard output and standard error of a command line."""

    def run(*arguments):
        capfd.readouterr()
        status = main([str(argument) for argument in arguments])
        return status, *capfd.readouterr()

    return run


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
    found = groups("1", "2", "3", "a|b [red]")
    # By the middle one of 20, 30 and 30 updates, and by 2.
    assert [each.window for each in found] == [6, 6, 2]
    drawn = plotting.png(draw_comparison(found, "episodes"))
    assert Path("out/c.png").read_bytes() == drawn
    with Path("out/c.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["label"] for row in rows] == ["lr 0.1", "lr 0.5", "a|b [red]"]
    for row, each in zip(rows, found, strict=True):
        assert row == {
            name: "" if value is None else str(value) for name, value in summarise(each).items()
        }
    markdown = Path("out/c.md").read_text()
    line = "| lr 0.1 | 2 | 30 | 120 | 3,000 | 0.75 | 26.50 ± 0.00 | 26.50 ± 0.00 | 1,000 |"
    assert line in markdown
    assert "| a\\|b \\[red\\] | 1 | 2 |" in markdown
    for words in (
        "lr 0.1",
        "26.50 ± 0.00",
        "the last few updates (CartPole-v1: 6, runs without settings: 2)",
        "a|b [red]",
        "Written: out/c.png, out/c.csv, out/c.md",
    ):
        assert words in out


def test_names_of_folders_are_text_for_spreadsheets_and_for_markdown(compare):
    names = ("=1+1", "-1", "@a", "plain", "<b>_x_", "`a`&amp;")
    for name in names:
        without_settings(f"runs/{name}")
    status, _, err = compare("runs", "--output", "c")
    assert (status, err) == (0, "")
    with Path("c.csv").open(newline="") as file:
        labels = {row["label"] for row in csv.DictReader(file)}
    assert labels == {"'=1+1", "'-1", "'@a", "plain", "<b>_x_", "`a`&amp;"}
    markdown = Path("c.md").read_text()
    for label in ("=1+1", r"\<b\>\_x\_", r"\`a\`\&amp;"):
        assert f"| {label} | 1 |" in markdown


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
    assert float(row["final"]) == pytest.approx(np.mean([each[-2:] for each in returns]))
    assert (row["label"], row["seeds"], row["updates"]) == ("CartPole-v1", "2", "3.0")


def test_a_run_whose_settings_changed_is_told_of(compare, program):
    for seed in (1, 2):
        run = ("--seed", seed, "--max-gradient-updates", 2, "--run-dir", f"runs/{seed}")
        program.train(*run)
    changed = ("--restore", "runs/2/latest.safetensors", "--override", "--lr", 0.03)
    program.train(*changed, "--max-gradient-updates", 4)
    status, _, err = compare("runs")
    assert status == 0
    assert err == (
        "warning: runs/2: counts as a run by its last settings; config.toml has those before\n"
    )


def test_a_run_in_a_folder_that_cannot_be_compared_is_left_out(compare, monkeypatch):
    a_run("runs/1")
    a_run("runs/2", [])
    a_run("runs/3").joinpath("progress.csv").write_text("a,b\n")
    a_run("runs/deep/4").joinpath("progress.csv").write_bytes(b"\xff\xfe\n")
    a_run("runs/5").joinpath("config.toml").write_text("lr = [")
    a_run("runs/6").joinpath("config.toml").write_text("weight = 1")
    Path("runs/7").mkdir()
    os.mkfifo("runs/7/progress.csv")
    Path("runs/locked").mkdir()
    scandir = os.scandir

    def scan(path):  # as root, who may run the tests, may read everything
        if str(path) == "runs/locked":
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", scan)
    status, out, err = compare("runs")
    assert status == 0
    assert "CartPole-v1 │     1 │" in out
    assert "the last 2 updates of each run" in out
    lines = err.splitlines()
    reasons = [
        "runs/locked: cannot be read (Permission denied)",
        "runs/2: has not finished an update yet",
        "runs/3/progress.csv: is no table of a run (",
        "runs/5/config.toml: is not valid TOML (",
        "runs/6/config.toml: unknown setting 'weight'",
        "runs/7/progress.csv: is no file",
        "runs/deep/4/progress.csv: is no table of a run (",
    ]
    for line, reason in zip(lines, reasons, strict=True):
        assert line.startswith(f"warning: {reason}")
        assert line.endswith(", and is left out")
    assert lines[1] == "warning: runs/2: has not finished an update yet, and is left out"


def test_a_folder_of_which_nothing_is_left_is_an_error(compare):
    a_run("runs/1", [])
    status, out, err = compare("runs")
    assert (status, out) == (2, "")
    warning, error = err.splitlines()
    assert warning.startswith("warning: runs/1: has not")
    assert error.startswith("error: RUN_DIR runs: holds no run that can be compared; ")


def test_an_interrupt_while_drawing_leaves_no_file_and_the_terminal_as_it_was(compare, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # as if on a terminal
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(plotting, "png", lambda _: os.kill(os.getpid(), signal.SIGINT))
    a_run("a")
    status, out, err = compare("a")
    assert (status, out) == (130, "")
    assert "Drawing the learning curves ..." in err
    hidden, shown = "\x1b[?25l", "\x1b[?25h"  # the cursor
    assert -1 < err.rfind(hidden) < err.rfind(shown)
    assert os.listdir() == ["a"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("", "RUN_DIR: is missing"),
        ("nowhere", "RUN_DIR nowhere: there is no such directory"),
        ("x" * 300, "xxx: there is no such directory"),
        ("file", "RUN_DIR file: is no directory"),
        ("folder", "RUN_DIR folder: there is no progress.csv in it"),
        ("foreign", "RUN_DIR foreign/progress.csv: is no table of a run (it has no column update)"),
        ("torn", "torn/progress.csv: is no table of a run (line 4 is no row of numbers: '3,12')"),
        ("letters", "(line 3 is no row of numbers: '2.0,8.0,abc,"),
        ("bytes", "RUN_DIR bytes/progress.csv: is no table of a run ("),
        ("falling", "is no table of a run (episodes falls from one row to the next"),
        ("empty", "RUN_DIR empty: has not finished an update yet"),
        ("settings", "RUN_DIR settings/config.toml: is not valid TOML"),
        ("settings", "); leave it out\n"),
        ("good nowhere", "RUN_DIR nowhere: there is no such directory"),
        ("good --by hours", "invalid choice 'hours' for argument '--by'. Expected one of ("),
        ("good --bye", "Unrecognized options: --bye; perhaps you meant --by {frames,"),
        ("good --by frames good", "Unrecognized options: good; see --help"),
        ("good --output", "Missing value for argument '--output'"),
        ("good --output=", "--output : must be the name of files"),
        ("good --output file/out", "--output file/out: cannot be written (file is no directory)"),
        ("good --output taken", "--output taken: cannot be written (taken.png: Is a directory)"),
    ],
)
def test_a_mistake_is_one_line_and_nothing_is_written(compare, arguments, words):
    Path("file").write_text("")
    Path("folder").mkdir()
    Path("taken.png").mkdir()
    a_run("good")
    a_run("empty", [])
    a_run("falling", episodes=[8, 4])
    a_run("foreign").joinpath("progress.csv").write_text("a,b\n1,2\n")
    a_run("bytes").joinpath("progress.csv").write_bytes(b"\xff\xfe\n")
    a_run("letters", frames=[1, 12345678])
    table = Path("letters/progress.csv")
    table.write_text(table.read_text().replace("12345678.0", "abc"))
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
