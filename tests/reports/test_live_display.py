import io

import pytest
from rich.console import Console as RichConsole

from es.reports.live_display import Display, needs_ascii
from es.reports.record import COLUMNS
from es.reports.terminal import Console
from tests.records import record
from tests.reports.test_live_view import COURSE


class Terminal(io.StringIO):
    """Forgets what was written whenever that is asked for; refuses more once it is gone."""

    gone = False

    def write(self, text):
        if self.gone:
            raise OSError(5, "Input/output error")
        return super().write(text)

    def new(self):
        text = self.getvalue()
        self.seek(0)
        self.truncate()
        return text


@pytest.mark.parametrize(
    ("silent", "tty", "term", "expected"),
    [
        (False, True, "xterm", "view"),
        (False, True, "dumb", "block"),
        (False, False, "xterm", "block"),
        (True, True, "xterm", "nothing"),
    ],
)
def test_only_a_terminal_that_can_draw_gets_the_view(
    monkeypatch, tmp_path, silent, tty, term, expected
):
    terminal = Terminal()
    monkeypatch.setattr(terminal, "isatty", lambda: tty)
    (tmp_path / "progress.csv").touch()
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.setenv("TERM", term)
    front = Console(silent=silent)
    front.follow(COURSE._replace(run_dir=tmp_path), lambda: "nobody")
    front.begin("update 1", 5)
    front.progress(3)
    front.report(record(1), n=4, cap=5, use_adam=False, best=None)
    front.say("[1] hello")
    front.stop()
    text = terminal.getvalue()
    assert ("update 1: 3 of 5 episodes" in text) is (expected == "view")
    assert ("Unperturbed rank: " in text) is (expected == "block")
    assert ("[1] hello\n" in text) is (expected != "nothing")
    assert text.endswith(("\n", "\x1b[?25h")) or expected == "nothing"
    assert text or expected == "nothing"


@pytest.fixture
def display(tmp_path, monkeypatch):
    """On a terminal of 100 columns, of a run that has done two updates; not drawn by itself."""
    (tmp_path / "progress.csv").write_text(
        ",".join(COLUMNS) + "\n" + "".join(",".join(map(str, record(n))) + "\n" for n in (1, 2))
    )
    rich = RichConsole(
        file=Terminal(), force_terminal=True, width=100, height=30, _environ={"TERM": "xterm"}
    )
    monkeypatch.setattr("es.reports.live_display.PER_SECOND", 0.001)
    course = COURSE._replace(run_dir=tmp_path, title="x" * 95, caps={"minutes": 9})
    drawn = Display(rich, course, lambda: "nobody")
    drawn.refresh()
    yield drawn
    drawn.stop()


def test_a_run_that_is_carried_on_has_its_curve(display):
    assert display.state.first == 12.0
    assert display.state.curve == (12.0, 12.0)
    display.report(record(3)._replace(unperturbed_return=20.0), 20.0)
    assert display.state.curve == (12.0, 12.0, 20.0)


def ups(text):
    return text.count("\x1b[1A")


def test_the_view_stays_in_place_when_the_terminal_gets_narrower(display):
    shown = display._shown
    lines = len(shown.splitlines())
    display.console.file.new()
    display.refresh()
    assert ups(display.console.file.new()) == lines - 1
    display.console.width = 50  # where the terminal has wrapped the title, or worse
    more = sum((len(line) - 1) // 50 for line in shown.splitlines())
    assert more > 1
    display.refresh()
    assert ups(display.console.file.new()) == lines - 1 + more


def test_a_terminal_that_vanishes_is_let_go(display):
    display.console.file.gone = True
    display.refresh()
    assert display.gone
    display.console.file.gone = False
    display.console.file.new()
    display.refresh()
    assert display.console.file.new() == ""


@pytest.mark.parametrize(
    ("variables", "encoding", "expected"),
    [
        ({}, "utf-8", False),
        ({"LANG": "en_US.UTF-8"}, "utf-8", False),
        ({"LANG": "C.UTF-8"}, "utf-8", False),
        ({"LANG": "C"}, "utf-8", True),
        ({"LANG": "C", "LC_CTYPE": "C.UTF-8"}, "utf-8", True),
        ({"LANG": "C", "LC_CTYPE": "de_DE.UTF-8"}, "utf-8", False),
        ({"LC_CTYPE": "C.UTF-8"}, "utf-8", False),
        ({"LC_ALL": "POSIX", "LANG": "en_US.UTF-8"}, "utf-8", True),
        ({"LANG": "en_US"}, "iso8859-1", True),
    ],
)
def test_the_locale_decides_on_the_characters(monkeypatch, variables, encoding, expected):
    for name in ("LC_ALL", "LC_CTYPE", "LANG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert needs_ascii(encoding) is expected
