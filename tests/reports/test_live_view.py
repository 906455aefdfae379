import io
import math
from pathlib import Path

import pytest
from rich.console import Console

from es.reports.live_view import Batch, Course, State, view
from es.reports.sparkline import KEPT, History, blocks
from es.runs.checkpoint import Counters
from tests.records import record

BEGAN = Counters(0, 0, 0, 0.0, 500, None, 0.1, 0.05)
COURSE = Course("CartPole-v1", Path("checkpoints/CartPole-v1"), 40, None, {}, BEGAN)
TENTH = record(10)._replace(frames=1000, wall_seconds=20.0, unperturbed_return=25.0)


def shown(state, seconds=20.0, width=80, height=30, **more):
    """The lines on a terminal of that width, as rich draws them."""
    console = Console(file=io.StringIO(), width=width, record=True)
    console.print(view(state, seconds, "2 workers", width=width, height=height, **more))
    return console.export_text().splitlines()


def line(lines, start):
    (found,) = [line for line in lines if line.startswith(start)]
    return found


STATES = {
    "new": State(COURSE),
    "caps": State(COURSE._replace(caps={"update": 100, "frames": 9000, "minutes": 2.5}), TENTH),
    "all": State(
        COURSE._replace(target=475.0, caps={"frames": 12_000_000}, run_dir=Path("a" * 90)),
        TENTH._replace(return_mean=-1234567.0, return_std=9.9e30, non_finite=3),
        best=25.0, curve=tuple(range(300)), first=0.0, batch=Batch("update 11", 41, 23),
    ),
    "nan": State(
        COURSE._replace(target=1.0, title="雪" * 30),
        TENTH._replace(unperturbed_return=math.nan, unperturbed_rank=41),
        curve=(-1e299, 1e299), first=1.0,
    ),
}  # fmt: skip


@pytest.mark.parametrize("width", [1, 12, 40, 80, 120])
@pytest.mark.parametrize("name", STATES)
def test_nothing_wraps(name, width):
    """rich would break a line that is too long; the view has as many lines as it says."""
    for ascii_only in (False, True):
        text = view(
            STATES[name], 5e5, "2 workers", width=width, height=99, ascii_only=ascii_only
        )  # fmt: skip
        lines = shown(STATES[name], 5e5, width, 99, ascii_only=ascii_only)
        assert lines == text.plain.split("\n")
        assert all(part.cell_len <= width for part in text.split("\n"))
        assert text.plain.isascii() or not ascii_only


def test_small_terminals_keep_what_changes():
    everything = len(shown(STATES["all"]))
    for height in range(1, everything + 1):
        lines = shown(STATES["all"], height=height)
        assert len(lines) <= height
        assert line(lines, "goal ").endswith("25.00 of 475.00")
        assert height < 3 or line(lines, "update 11: 23 of 41 episodes")
    assert len(lines) == everything == 10


def test_the_way_to_the_goal_begins_with_the_first_return():
    course = COURSE._replace(target=45.0)
    for first, value, percent in (
        (5.0, 25.0, 50), (5.0, 5.0, 0), (5.0, 1.0, 0), (5.0, 44.9, 99), (5.0, 45.0, 100),
        (50.0, 46.0, 100), (50.0, 44.0, 0), (5.0, math.nan, 0), (None, math.nan, 0),
    ):  # fmt: skip
        state = State(course, TENTH._replace(unperturbed_return=value), first=first)
        goal = line(shown(state), "goal ")
        assert f" {percent}% {value:.2f} of 45.00" in goal
        assert goal.count("━") == 40 * percent // 100
        assert goal.count("━") + goal.count("─") == 40
    assert line(shown(State(course)), "goal ").endswith(" 0% 45.00")


def test_the_cap_is_the_one_that_comes_first():
    """After 20 seconds: 10 updates, 1000 frames."""
    for caps, words, left in (
        ({"update": 100}, "10% 10 of 100 updates", "left 0:03:00"),
        ({"update": 100, "frames": 1500}, "66% 1,000 of 1,500 frames", "left 0:00:10"),
        ({"update": 100, "minutes": 1}, "33% 0.3 of 1 minutes", "left 0:00:40"),
        ({"update": 100, "frames": 4000, "minutes": 10}, "25% 1,000 of 4,000", "left 0:01:00"),
        ({"frames": 900}, "100% 1,000 of 900 frames", "left 0:00:00"),
        ({"update": 100_000}, "0% 10 of 100,000 updates", "left 55:33:00"),
    ):
        lines = shown(State(COURSE._replace(caps=caps), TENTH))
        assert words in line(lines, "cap ")
        assert left in "\n".join(lines)
    without = "\n".join(shown(State(COURSE, TENTH), 30.0))
    assert "elapsed 0:00:30" in without
    assert "left" not in without
    assert "cap " not in without


def test_time_goes_on_within_an_update():
    state = State(COURSE._replace(caps={"update": 100}), TENTH)
    assert "elapsed 0:00:50 │ left 0:02:30" in "\n".join(shown(state, 50.0))
    assert "left 0:00:00" in "\n".join(shown(state, 999.0))


def test_before_the_first_update_nothing_is_known_but_the_clock():
    caps: dict[str, float] = {"update": 100, "minutes": 2}
    began = BEGAN._replace(update=90, frames=900, wall_seconds=30.0)
    for counters, cap, left in ((BEGAN, "0.2 of 2 minutes", True), (began, "90 of 100", False)):
        lines = shown(State(COURSE._replace(caps=caps, began=counters)), 12.0)
        assert cap in line(lines, "cap ")
        assert ("left 0:01:48" in "\n".join(lines)) is left
        assert "return" not in "\n".join(lines)


def test_the_time_left_is_estimated_from_this_process_alone():
    """8 of 10 updates were another's, and took 10 of the 20 seconds."""
    began = BEGAN._replace(update=8, frames=100, wall_seconds=10.0)
    for caps, cap, left in (
        ({"update": 20}, "50% 10 of 20 updates", "left 0:00:50"),
        ({"update": 12, "frames": 1500}, "66% 1,000 of 1,500 frames", "left 0:00:05"),
    ):
        lines = shown(State(COURSE._replace(caps=caps, began=began), TENTH))
        assert cap in line(lines, "cap ")
        assert left in "\n".join(lines)


def test_the_figures_of_the_last_update():
    text = "\n".join(shown(STATES["all"], 4 * 3600.0, 120))
    for words in (
        "CartPole-v1 │ ", "update 11: 23 of 41 episodes │ 1,000 steps/s │ elapsed 4:00:00 │ left ",
        "return -1.235e+06 ± 9.9e+30 │ max 15.00 │ min 5.00 │ unperturbed 25.00 │ rank 2 of 41",
        "best 25.00 │ 3 not finite", "│ 2 workers",
    ):  # fmt: skip
        assert words in text.replace("\n", " │ ")
    assert "best" not in "\n".join(shown(State(COURSE, TENTH)))


def test_the_curve_rises_with_the_returns():
    assert blocks([0.0, 1.0, 2.0, 3.0], 9, 1) == ["▁▃▆█"]
    assert blocks([0.0, 1.0], 9, 2) == [" █", "▁█"]
    assert blocks([5.0] * 3, 9, 2) == ["   ", "▁▁▁"]
    assert blocks([0.0, 2.0, 9.0, 11.0], 2, 1) == ["▂▇"]
    lines = shown(STATES["all"])[-2:]
    assert [text.split()[-1] for text in lines] == ["299.00", "0.00"]
    assert len(lines[1].split()[0]) == 60
    assert shown(STATES["nan"], ascii_only=True)[-2:] == [" | 1e+299", ".| -1e+299"]


def test_a_long_history_is_kept_as_means():
    history, count = History(), 5 * KEPT
    assert (history.curve(), history.first) == ((), None)
    for value in range(count):
        history.add(float(value))
    curve = history.curve()
    assert KEPT <= len(curve) <= 2 * KEPT + 1
    assert curve[:2] == (1.5, 5.5)
    assert curve[-1] == pytest.approx(count - 2.5)
    assert history.first == 0.0


def test_returns_that_are_no_numbers_are_left_out_of_the_curve():
    history = History()
    for value in (math.nan, math.inf, 3.0, -math.inf, 5.0):
        history.add(value)
    assert (history.first, history.curve()) == (3.0, (3.0, 5.0))
