"""Runs on one picture and in one table."""

import csv
import os
import signal
from pathlib import Path

import numpy as np
import pytest

from es.reports import plotting
from es.reports.comparison.picture import draw_comparison
from es.reports.comparison.table import summarise
from es.reports.tables import read_progress
from tests.processes import run_python
from tests.records import FALLING, RISING, a_run, groups, without_settings


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


def test_a_picture_does_not_depend_on_the_backend_of_a_notebook():
    program = """
from es.reports import plotting
figure, _ = plotting.new_figure(["title"], "x", "y")
print(len(plotting.png(figure)))
"""
    done = run_python(program, MPLBACKEND="nonsense")
    assert (done.stderr, int(done.stdout) > 1000) == ("", True)


def test_help_is_light():
    program = (
        "import sys; from es.compare import main\n"
        "try: main(['--help'])\n"
        "finally: print(sorted({'matplotlib', 'numpy', 'torch'} & set(sys.modules)))"
    )
    result = run_python(program)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.endswith("[]\n")
    for word in ("RUN_DIR", "--by", "--output", "frames", "episodes", "minutes"):
        assert word in result.stdout
