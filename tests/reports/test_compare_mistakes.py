"""Runs and command lines that cannot be compared."""

import errno
import os
from pathlib import Path

import pytest

from tests.records import a_run


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


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("", "are required: RUN_DIR"),
        ("nowhere", "RUN_DIR nowhere: there is no such directory"),
        ("x" * 300, "xxx: there is no such directory"),
        ("file", "RUN_DIR file: is not a directory"),
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
        ("good --by hours", "--by: invalid choice: 'hours' (choose from"),
        ("good --bye", "unknown flag --bye; did you mean --by?"),
        ("good --by frames good", "unexpected argument 'good'; see --help"),
        ("good --output", "--output: expected one argument"),
        ("good --output=", "--output : must be the name of files"),
        (
            "good --output file/out",
            "--output file/out: cannot be written (file: not a directory)",
        ),
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
