import io
import math
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from es.checkpoint import Counters
from es.reports.live_view import RunLimits, RunView
from es.reports.terminal import AsciiConsole
from tests.records import record

BEGAN = Counters(0, 0, 0, 0.0, 500, None, 0.1, 0.05)
LIMITS = RunLimits("CartPole-v1", Path("checkpoints/CartPole-v1"), None, {}, BEGAN)
TENTH = record(10)._replace(frames=1000, wall_seconds=20.0, unperturbed_return=25.0)


class Screen(io.StringIO):
    """Standard output that may be a terminal, and may vanish."""

    tty, gone = True, False

    def isatty(self):
        return self.tty

    def write(self, text):
        if self.gone:
            raise OSError(5, "Input/output error")
        return super().write(text)


@pytest.fixture
def show(monkeypatch):
    """Draw a run after so many seconds; the result is its lines."""

    def show(
        update=None, seconds=20.0, width=80, height=30, returns=(), best=None, batch=None,
        console=Console, **limits,
    ):  # fmt: skip
        file, clock = Screen(), SimpleNamespace(monotonic=lambda: 0.0)
        screen = console(
            file=file, force_terminal=True, width=width, height=height, _environ={"TERM": "xterm"}
        )
        monkeypatch.setattr("es.reports.live_view.time", clock)
        run = LIMITS._replace(**limits)
        view = RunView(screen, run, returns, lambda: "2 workers")
        if update:
            view.report(update, 60, best)
        if batch:
            view.begin(*batch[:2])
            view.done = batch[2]
        view.auto_refresh = False
        view.start()
        clock.monotonic = lambda: seconds - run.began.wall_seconds
        view.refresh()
        text = re.sub(r"\x1b\[[?\d;]*[a-zA-Z]|\r", "", file.getvalue())
        view.stop()
        return [line.rstrip() for line in text.split("\n")]

    return show


def line(lines, start):
    (found,) = [line for line in lines if line.startswith(start)]
    return found


EVERYTHING = {
    "update": TENTH._replace(return_mean=-1234567.0, return_std=9.9e30, non_finite=3),
    "best": 25.0, "returns": range(300), "batch": ("update 11", 41, 23), "seconds": 4 * 3600.0,
    "target": 475.0, "caps": {"frames": 12_000_000}, "run_dir": Path("a" * 90),
}  # fmt: skip
RUNS: dict[str, dict[str, Any]] = {
    "endless": {"update": TENTH, "caps": {"minutes": 1e15}},
    "new": {},
    "all": EVERYTHING,
    "nan": {
        "update": TENTH._replace(unperturbed_return=math.nan, unperturbed_rank=41),
        "returns": (-1e299, 1e299), "target": 1.0, "title": "雪" * 30,
    },
}  # fmt: skip


@pytest.mark.parametrize("console", [Console, AsciiConsole])
@pytest.mark.parametrize("size", [(1, 99), (12, 99), (40, 9), (80, 5), (120, 1)])
@pytest.mark.parametrize("name", RUNS)
def test_the_view_fits_on_every_terminal(show, name, size, console):
    """A line that wraps, or a line too many, would be drawn again further down."""
    width, height = size
    lines = show(**RUNS[name] | {"width": width, "height": height, "console": console})
    assert len(lines) <= height
    assert max(map(cell_len, lines)) <= width
    if console is AsciiConsole and name == "all":
        assert "".join(lines).isascii()


def test_the_way_to_the_goal_begins_with_the_first_return(show):
    """And ends with the mean of three, by which the target is asked for."""
    for first, value, percent in (
        (5.0, 25.0, 50), (5.0, 5.0, 0), (5.0, 1.0, 0), (5.0, 44.9, 99), (5.0, 45.0, 100),
        (50.0, 46.0, 100), (50.0, 44.0, 0),
    ):  # fmt: skip
        update, before = TENTH._replace(unperturbed_return=value - 3), (value + 2, value + 1)
        goal = line(show(update, returns=(math.nan, first, *before), target=45.0), "goal ")
        reached = " (evaluations decide)" if percent == 100 else ""
        assert goal.endswith(f" {percent}% {value:.2f} of 45.00{reached}")
    assert line(show(target=45.0), "goal ").endswith(" 0% 45.00")


def test_the_cap_is_the_one_that_comes_first(show):
    """After 20 seconds: 10 updates, 1000 frames."""
    for caps, words, left in (
        ({"update": 100}, "10% 10 of 100 updates", "0:03:00 left"),
        ({"update": 100, "frames": 1500}, "66% 1,000 of 1,500 frames", "0:00:10 left"),
        ({"update": 100, "minutes": 1}, "33% 0.3 of 1 minutes", "0:00:40 left"),
        (
            {"update": 100, "frames": 4000, "minutes": 10},
            "25% 1,000 of 4,000 frames",
            "0:01:00 left",
        ),
        ({"frames": 900}, "100% 1,000 of 900 frames", "0:00:00 left"),
    ):
        lines = show(TENTH, caps=caps)
        assert f"{words}, {left}" in line(lines, "cap ")
    without = "\n".join(show(TENTH, 30.0))
    assert "elapsed 0:00:30" in without
    assert "left" not in without
    assert "cap " not in without


def test_time_goes_on_within_an_update(show):
    caps = {"update": 100}
    lines = show(TENTH, 50.0, caps=caps)
    assert "elapsed 0:00:50" in "\n".join(lines)
    assert line(lines, "cap ").endswith(", 0:02:30 left")
    assert line(show(TENTH, 999.0, caps=caps), "cap ").endswith(", 0:00:00 left")


def test_before_the_first_update_nothing_is_known_but_the_clock(show):
    lines = show(seconds=12.0, caps={"update": 100, "minutes": 2})
    assert "0.2 of 2 minutes, 0:01:48 left" in line(lines, "cap ")
    assert line(lines, "elapsed") == "elapsed 0:00:12"
    began = BEGAN._replace(update=90, frames=900, wall_seconds=10.0)
    lines = show(seconds=12.0, caps={"update": 100}, began=began)
    assert line(lines, "cap ").endswith("90% 90 of 100 updates")
    assert line(lines, "elapsed") == "elapsed 0:00:12"


def test_the_time_left_is_estimated_from_this_process_alone(show):
    """8 of 10 updates were another's, and took 10 of the 20 seconds."""
    began = BEGAN._replace(update=8, frames=100, wall_seconds=10.0)
    for caps, cap, left in (
        ({"update": 20}, "50% 10 of 20 updates", "0:00:50 left"),
        ({"update": 12, "frames": 1500}, "66% 1,000 of 1,500 frames", "0:00:05 left"),
    ):
        lines = show(TENTH, caps=caps, began=began)
        assert f"{cap}, {left}" in line(lines, "cap ")


def test_the_figures_of_the_last_update(show):
    text = "  ".join(show(**EVERYTHING, width=120))
    for words in (
        f"CartPole-v1  {'a' * 90}  2 workers",
        "update 11: 23 of 41 episodes  1,000 steps/s  elapsed 4:00:00",
        "return -1.235e+06 ± 9.9e+30  max 15.00  min 5.00  unperturbed 25.00  rank 2 of 61  ",
        "best 25.00  3 not finite",
    ):
        assert words in text
    assert "best" not in "\n".join(show(TENTH))


def test_the_curve_rises_with_the_returns(show):
    def curve(*returns, **options):
        return show(returns=returns, **options)[-2:]

    assert curve(0.0, 1.0, 2.0, 3.0) == ["  ▃█ 3.00", "▁▆██ 0.00"]
    assert curve(5.0, math.nan, 5.0) == ["   5.00", "▁▁ 5.00"]
    assert curve(-1e299, math.inf, 1e299, width=12) == [" █ 1e+299", "▁█ -1e+299"]
    assert curve(0.0, 3.0, console=AsciiConsole) == [" | 3.00", ".| 0.00"]
    assert [len(text.split()[0]) for text in curve(*range(300))[1:]] == [60]
