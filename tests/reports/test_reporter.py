import os
import re
import struct
from itertools import count
from typing import Any

import numpy as np
import pytest

from es import checkpoint as checkpoints
from es.algorithm.shaping import Population
from es.reports.append_only import AppendOnlyFile
from es.reports.learning_curve import CurvePainter, draw
from es.reports.one_shot import USUAL, start
from es.reports.record import describe_population
from es.reports.reporter import Reporter
from es.reports.terminal import Terminal
from es.run import CURVE, open_new
from tests.processes import wait_until
from tests.records import RETURNS, counters_after, events_of, files_of, png, record, write


def reporter_of(directory, update=0):
    counters, console = counters_after(update), Terminal(silent=True)
    return Reporter(directory, console, title="", counters=counters, settings={})


def test_the_figures_of_a_batch():
    returns = np.array([1.0, 4.0, 4.0, 7.0])
    assert describe_population(Population(returns, -returns, [10, 20, 30, 40], 4.0, 2)) == {
        "return_mean": 4.0,
        "return_std": pytest.approx(4.5**0.5),
        "return_max": 7.0,
        "return_min": 1.0,
        "unperturbed_return": 4.0,
        "unperturbed_rank": 2,
        "elite_count": 1,
        "non_finite": 0,
        "episode_length_mean": 25.0,
    }


def test_returns_that_are_no_numbers_are_counted_and_left_out():
    returns = np.array([1.0, np.nan, 3.0, np.inf, -np.inf])
    figures = describe_population(Population(returns, returns, [1] * 5, np.inf, 6))
    assert figures["non_finite"] == 3
    assert (figures["return_mean"], figures["return_std"]) == (2.0, 1.0)
    assert (figures["return_max"], figures["return_min"]) == (3.0, 1.0)
    assert (figures["elite_count"], figures["unperturbed_rank"]) == (1, 6)


def test_the_block_has_the_labels_of_pytorch_es(capsys):
    Terminal(silent=False).report(record(2), n=40, cap=500, use_adam=True, best=12.0)
    out = capsys.readouterr().out
    for line in (
        "Episode num: 8", "Average reward: 12.000000", "Variance in rewards: 4.000000",
        "Max reward: 15.000000", "Min reward: 5.000000", "Batch size: 40",
        "Max episode length: 500", "Sigma: 0.050000", "Learning rate: 0.100000",
        "Total num frames seen: 200", "Unperturbed reward: 12.000000",
        "Unperturbed rank: 2 out of 41 (1 means gradient is uninformative)",
        "Using Adam: True", "Wall-clock: 3.0 s", "Steps per second: 1000",
    ):  # fmt: skip
        assert line in out.splitlines()


def log_of(capsys, seconds, *records):
    """What is printed of these updates, in which the cap is 500 at first and 900 later."""
    console = Terminal(silent=False, log_every=seconds)
    for number, each in enumerate(records):
        cap = 900 if number else 500
        console.report(each, n=40, cap=cap, use_adam=False, best=None)
    console.close("done")
    return capsys.readouterr().out


def test_a_log_has_lines_between_the_blocks_of_the_first_and_the_last_update(capsys):
    """At most one in so many seconds; an update takes 1.5 of them here."""
    out = log_of(capsys, 3.0, *map(record, range(1, 7)))
    lines = [line for line in out.splitlines() if line.startswith("update ")]
    assert [line.split()[1] for line in lines] == ["3", "5"]
    assert lines[0] == (
        "update 3  episodes 12  frames 300  return mean 13 std 2 max 15 min 5  "
        "unperturbed 12 rank 2 of 41  cap 900  1000 steps/s  4.5 s"
    )
    blocks = [line for line in out.splitlines() if line.startswith("Episode num: ")]
    assert blocks == ["Episode num: 4", "Episode num: 24"]
    assert out.rindex("Episode num: ") > out.rindex("update 5")


def test_a_line_says_what_has_changed_and_what_is_no_number(capsys):
    decayed = record(2)._replace(sigma=0.025, lr=0.08, non_finite=3)
    (line,) = re.findall("^update 2.*", log_of(capsys, 1.0, record(1), decayed), re.MULTILINE)
    assert "sigma 0.025  lr 0.08  not finite 3" in line


def test_without_seconds_every_update_is_a_block(capsys):
    out = log_of(capsys, 0.0, record(1), record(2))
    assert (out.count("Episode num: "), "update 2" in out) == (2, False)


def test_an_update_of_a_log_is_printed_once(capsys):
    assert log_of(capsys, 1.0, record(1)).count("Episode num: ") == 1


def test_silence_leaves_the_last_line(capsys):
    console = Terminal(silent=True)
    console.say("hello")
    console.report(record(1), n=4, cap=5, use_adam=False, best=None)
    console.close("done")
    assert capsys.readouterr().out == "done\n"


def test_the_latest_checkpoint_is_written_last(tmp_path, monkeypatch):
    """So that a run that is carried on from it has everything of before."""
    names: list[str] = []
    monkeypatch.setattr(checkpoints, "save", lambda checkpoint, path: names.append(path.name))
    monkeypatch.setattr(AppendOnlyFile, "flush", lambda file: names.append(file._path.name[:8]))
    directory = open_new(tmp_path / "run")
    reporter = reporter_of(directory)
    checkpoint: Any = None
    names.clear()
    files = ("latest.safetensors", "update-3.safetensors", "best.safetensors")
    reporter.commit(dict.fromkeys(files, checkpoint))
    assert reporter.close(hurried=lambda: True) == {}
    assert names == ["progress", "evaluati", "events.o", files[1], files[2], files[0]]
    directory.close()


def test_the_curve_is_among_the_events_when_the_updates_have_doubled_and_in_the_end(
    tmp_path, monkeypatch
):
    """And a run that is carried on goes on with that."""
    numbers, picture = count(1), tmp_path / "run" / CURVE

    def draw(painter, *priority):
        picture.write_bytes(png(number := next(numbers), 1))
        os.utime(picture, ns=(number, number))

    monkeypatch.setattr(CurvePainter, "_draw", draw)
    monkeypatch.setattr("es.reports.learning_curve.REDRAW_SECONDS", 0)
    directory = open_new(tmp_path / "run")
    for first, last in ((0, 9), (9, 20)):
        reporter = reporter_of(directory, first)
        for update in range(first + 1, last + 1):
            reporter.commit({}, played=(record(update), RETURNS))
        reporter.close(hurried=lambda: True)
    directory.close()
    shown = events_of(tmp_path / "run").Tensors("learning_curve")
    assert [event.step for event in shown] == [100, 200, 400, 800, 900, 1800, 2000]


def assert_drawn(path):
    """The picture has axes of 8 by 5 inches, and a legend below."""
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", data[16:24])
    assert 960 <= width < 1000
    assert 600 < height < 800


def test_the_curve_is_drawn_and_changes_with_the_figures(tmp_path):
    files, pictures = files_of(tmp_path), []
    for update in (1, 2):
        write(files, record(update))
        draw(tmp_path, "a title")
        pictures.append((tmp_path / "learning_curve.png").read_bytes())
    files.close()
    assert_drawn(tmp_path / "learning_curve.png")
    assert pictures[0] != pictures[1]


@pytest.mark.picture
def test_the_painter_draws_the_last_state_at_the_end(tmp_path, monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "nonsense")  # as from a notebook of another environment
    files, painter = files_of(tmp_path), CurvePainter(tmp_path, "a title")
    write(files, record(1))
    painter.request()  # too soon for a picture
    assert not (tmp_path / "learning_curve.png").exists()
    assert painter.close(lambda idle: False) == ""
    files.close()
    assert_drawn(tmp_path / "learning_curve.png")
    assert not [path.name for path in tmp_path.iterdir() if re.search(r"tmp|^\.", path.name)]


@pytest.mark.picture
@pytest.mark.parametrize("interrupted", [True, False])
def test_the_last_state_is_drawn_at_the_end_of_a_run(tmp_path, monkeypatch, interrupted):
    """Who is interrupted waits less long: here for as long as this machine takes."""
    seconds = ("HURRIED_SECONDS", "PICTURE_SECONDS")
    for name, patience in zip(seconds, (600.0, 0.0) if interrupted else (0.0, 600.0), strict=True):
        monkeypatch.setattr(f"es.reports.reporter.{name}", patience)
    directory = open_new(tmp_path / "run")
    reporter = reporter_of(directory)
    reporter.commit({}, played=(record(1), RETURNS))
    reporter.close(hurried=lambda: interrupted)
    directory.close()
    assert_drawn(tmp_path / "run" / CURVE)


@pytest.mark.picture
def test_a_picture_that_cannot_be_drawn_is_told_and_tried_twice(tmp_path, monkeypatch, capfd):
    begun: list[str] = []

    def begin(module, *arguments, priority):
        begun.append(priority)
        return start(module, *arguments, priority=USUAL)  # which takes less long

    monkeypatch.setattr("es.reports.learning_curve.start", begin)
    monkeypatch.setattr("es.reports.learning_curve.REDRAW_SECONDS", 0)
    directory = open_new(tmp_path / "run")
    reporter = reporter_of(directory)
    (tmp_path / "run" / "progress.csv").write_text("damaged\n")
    painter = reporter._painter
    for _ in range(3):
        painter.request()
        wait_until(lambda: not painter._drawing())
    painter.request()
    reporter.close(hurried=lambda: False)
    directory.close()
    assert len(begun) == 2
    err = capfd.readouterr().err
    assert err.startswith(f"warning: {tmp_path / 'run' / CURVE}: does not show the last updates (")
    assert (err.count("(ValueError: it has no column update)"), err.count("\n")) == (1, 1)


@pytest.mark.picture
def test_a_painter_without_figures_starts_nothing(tmp_path):
    assert CurvePainter(tmp_path, "a title").close(lambda idle: False) == ""
    assert list(tmp_path.iterdir()) == []
