"""What a run prints: a live view on a terminal, blocks and lines elsewhere."""

import io
import math
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import rich.console
from rich.cells import cell_len

from es.checkpoint import Counters
from es.reports.console import Console, LiveView, RunLimits, sparkline
from tests.checkpoints import RUN, read, rows
from tests.conftest import ENDLESS
from tests.processes import ROOT
from tests.records import record, write_progress

BEGAN = Counters(0, 0, 0, 0.0, 500, None, 0.1, 0.05)
LIMITS = RunLimits("CartPole-v1", Path("checkpoints/CartPole-v1"), None, {}, BEGAN)
TENTH = record(10)._replace(frames=1000, wall_seconds=20.0, unperturbed_return=25.0)
NO_SIGNAL = record(1)._replace(grad_norm=0.0, return_min=-200.0, return_max=-200.0)


def printed(capsys, seconds, *records):
    """What is printed of these updates of 40 perturbations."""
    console = Console(silent=False, log_every=seconds)
    for each in records:
        console.report(each, n=40, cap=500, use_adam=True, best=None)
    console.close("done")
    return capsys.readouterr().out


def test_the_block_has_the_labels_of_pytorch_es(capsys):
    lines = printed(capsys, 0.0, record(2)._replace(non_finite=3)).splitlines()
    assert lines == [
        "Episode num: 8", "Average reward: 12.000000", "Variance in rewards: 4.000000",
        "Max reward: 15.000000", "Min reward: 5.000000", "Batch size: 40",
        "Max episode length: 500", "Sigma: 0.050000", "Learning rate: 0.100000",
        "Total num frames seen: 200", "Unperturbed reward: 12.000000",
        "Unperturbed rank: 2 out of 41 (1 means gradient is uninformative)",
        "Using Adam: True", "Wall-clock: 3.0 s", "Steps per second: 1000",
        "Returns not finite: 3 (ranked last)", "", "done",
    ]  # fmt: skip


def test_there_is_a_line_in_so_many_seconds_and_one_of_the_last_update(capsys):
    """An update takes 1.5 seconds here."""
    *lines, last = printed(capsys, 3.0, *map(record, range(1, 7))).splitlines()
    assert [line.split()[1] for line in lines] == ["1", "3", "5", "6"]
    assert lines[1] == (
        "update 3  episodes 12  frames 300  return mean 13 std 2 max 15 min 5  "
        "unperturbed 12 rank 2 of 41  1000 steps/s  4.5 s"
    )
    assert last == "done"


def test_silence_leaves_the_last_line_to_the_command_line(capsys):
    for in_program in (False, True):
        console = Console(silent=True, in_program=in_program)
        console.say("hello")
        console.report(record(1), n=4, cap=5, use_adam=False, best=None)
        console.close("done")
        assert capsys.readouterr().out == ("" if in_program else "done\n")


def test_equal_returns_for_many_updates_in_a_row_are_told_once(capsys):
    out = printed(capsys, 1e9, *[NO_SIGNAL] * 9, record(1), *[NO_SIGNAL] * 9)
    assert "made no difference" not in out
    out = printed(capsys, 1e9, *[NO_SIGNAL] * 25)
    assert out.count("made no difference to the returns (the largest is -200)") == 1


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
def on_screen(monkeypatch, tmp_path):
    """Follow a run that has done two updates, on a screen; the result is both."""
    write_progress(tmp_path, 2)

    def follow(*, silent=False, tty=True, term="xterm"):
        screen = Screen()
        screen.tty = tty
        monkeypatch.setattr("sys.stdout", screen)
        monkeypatch.setenv("TERM", term)
        console = Console(silent=silent, log_every=1.0)
        console.follow(LIMITS._replace(run_dir=tmp_path))
        return console, screen

    return follow


@pytest.mark.parametrize(
    ("options", "expected"),
    [({}, "view"), ({"term": "dumb"}, "line"), ({"tty": False}, "line"), ({"silent": True}, "")],
)
def test_only_a_terminal_that_can_draw_gets_the_view(on_screen, options, expected):
    console, screen = on_screen(**options)
    console.progress("update 3", 3, 5, "nobody")
    third = record(3)._replace(unperturbed_return=20.0)
    console.report(third, n=4, cap=5, use_adam=False, best=None)
    command = f"python main.py --restore {'a' * 300}"
    console.say(f"[1] hello\n  {command}\n")
    console.stop()
    text = screen.getvalue()
    assert ("update 3: 3 of 5 episodes" in text) is (expected == "view")
    assert ("▁▁█" in text) is (expected == "view")  # with the returns of earlier updates
    assert ("update 3  episodes 12" in text) is (expected == "line")
    assert all((words in text) is (expected != "") for words in ("[1] hello\n", f"  {command}\n"))
    assert text.endswith("\x1b[?25h") is (expected == "view")
    assert bool(text) is (expected != "")


def test_a_terminal_that_vanishes_is_let_go(on_screen, capsys):
    console, screen = on_screen()
    view = console._view
    screen.gone = True
    view.refresh()
    assert not view.is_started
    console.close("done")
    assert capsys.readouterr().err == "done\n"


@pytest.fixture
def show(monkeypatch):
    """Draw a run after so many seconds; the result is its lines."""

    def show(
        update=None, seconds=20.0, width=80, height=30, returns=(), best=None, batch="", **limits
    ):
        file, clock = Screen(), SimpleNamespace(monotonic=lambda: 0.0)
        screen = rich.console.Console(
            file=file, force_terminal=True, width=width, height=height, _environ={"TERM": "xterm"}
        )
        monkeypatch.setattr("es.reports.console.time", clock)
        run = LIMITS._replace(**limits)
        view = LiveView(screen, run)
        view._returns.extend(returns)
        if update:
            view.report(update, 60, best)
        view.batch, view.workers = batch, "2 workers"
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


EVERYTHING: dict[str, Any] = {
    "update": TENTH._replace(return_mean=-1234567.0, return_std=9.9e30, non_finite=3),
    "best": 25.0, "returns": range(300), "batch": "update 11: 23 of 41 episodes",
    "seconds": 4 * 3600.0, "target": 475.0, "caps": {"frames": 12_000_000, "minutes": 1e15},
    "run_dir": Path("a" * 90),
}  # fmt: skip
RUNS: dict[str, dict[str, Any]] = {
    "all": EVERYTHING,
    "nan": {
        "update": TENTH._replace(unperturbed_return=math.nan, unperturbed_rank=41),
        "returns": (-1e299, 1e299), "target": 1.0, "title": "雪" * 30,
    },
}  # fmt: skip


@pytest.mark.parametrize("size", [(1, 99), (40, 9), (120, 1)])
@pytest.mark.parametrize("name", RUNS)
def test_the_view_fits_on_every_terminal(show, name, size):
    """A line that wraps, or a line too many, would be drawn again further down."""
    width, height = size
    lines = show(**RUNS[name] | {"width": width, "height": height})
    assert len(lines) <= height
    assert max(map(cell_len, lines)) <= width


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (25, "50% 25.00 of 45.00"), (1, "0% 1.00 of 45.00"), (44.9, "99% 44.90 of 45.00"),
        (46, "100% 46.00 of 45.00 (evaluations decide)"),
    ],
)  # fmt: skip
def test_the_way_to_the_goal_is_that_of_the_mean_of_three_returns(show, value, words):
    """From a first return of 5."""
    update, before = TENTH._replace(unperturbed_return=value - 3), (value + 2, value + 1)
    goal = line(show(update, returns=(math.nan, 5, *before), target=45.0), "goal ")
    assert goal.endswith(f" {words}")


@pytest.mark.parametrize(
    ("name", "most", "words"),
    [
        ("update", 20, "50% 10 of 20 updates, 0:00:50 left"),
        ("frames", 1500, "66% 1,000 of 1,500 frames, 0:00:05 left"),
        ("minutes", 1.0, "33% 0.3 of 1.0 minutes, 0:00:40 left"),
        ("frames", 900, "100% 1,000 of 900 frames, 0:00:00 left"),
    ],
)
def test_a_cap_is_shown_with_the_time_that_is_left(show, name, most, words):
    """10 updates and 1000 frames in 20 seconds, of which 8, 100 and 10 were another process's."""
    began = BEGAN._replace(update=8, frames=100, wall_seconds=10.0)
    assert line(show(TENTH, caps={name: most}, began=began), "cap ").endswith(words)


def test_no_time_is_known_before_the_first_update(show):
    lines = show(seconds=12.0, caps={"update": 100})
    assert line(lines, "cap ").endswith(" 0% 0 of 100 updates")
    assert line(lines, "elapsed") == "elapsed 0:00:12"


def test_the_figures_of_the_last_update(show):
    text = "  ".join(show(**EVERYTHING, width=120))
    for words in (
        f"CartPole-v1  {'a' * 90}  2 workers",
        "update 11: 23 of 41 episodes  1,000 steps/s  elapsed 4:00:00",
        "return -1.235e+06 ± 9.9e+30  max 15.00  min 5.00  unperturbed 25.00  rank 2 of 61  ",
        "best 25.00  3 not finite",
    ):
        assert words in text
    assert not re.search("best|left|cap ", "\n".join(show(TENTH)))


def test_the_curve_rises_with_the_returns(show):
    assert sparkline(np.arange(8.0)) == "▁▂▃▄▅▆▇█"
    assert sparkline(np.array([5.0, 5.0])) == "▁▁"
    assert len(sparkline(np.arange(300.0))) == 60
    assert show(returns=(0.0, math.nan, 3.0))[-1] == "▁█ 0.00 to 3.00"


ON_A_TERMINAL = """
import os, pty, signal, sys
pid, terminal = pty.fork()
if pid == 0:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup, which may run the tests, ignores it
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
shown = b""
while "▁".encode() not in shown:
    shown += os.read(terminal, 65536)
os.close(terminal)
sys.stdout.buffer.write(shown)
sys.stdout.flush()
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


def test_a_terminal_shows_a_live_view_and_ends_the_run_as_a_signal_does_when_it_is_closed():
    command = [str(ROOT / "main.py"), *map(str, ENDLESS), "--workers", "0"]
    size = {"TERM": "xterm", "COLUMNS": "100", "LINES": "30", "NO_COLOR": "1"}
    done = subprocess.run(
        [sys.executable, "-c", ON_A_TERMINAL, *command], check=False, env=os.environ | size,
        stdout=subprocess.PIPE, encoding="utf-8", timeout=120,
    )  # fmt: skip
    assert done.returncode == 128 + signal.SIGHUP
    assert read(RUN / "latest.safetensors").counters.update == len(rows())
    assert not re.search(r"\x1b\[[\d;]*3\dm", done.stdout)  # by NO_COLOR
    text = done.stdout.replace("\x1b[2K", "\n")  # which erases a line before it is drawn again
    lines = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]|\r", "", text).split("\n")
    top = max(at for at, line in enumerate(lines) if line.startswith("CartPole-v1  checkpoints"))
    goal, batch, figures, returns = lines[top + 1 : top + 5]
    assert re.match("goal [━╸╺ ]{40} .* of 501.00 *$", goal)
    assert re.match(r"update \d+: \d+ of 41 episodes  [0-9,]+ steps/s  elapsed .*$", batch)
    assert re.match(r"return .* rank \d+ of 41", figures)
    assert re.match("[▁▂▃▄▅▆▇█]+ ", returns)
