"""What of a run goes to standard output, on a terminal and elsewhere."""

import pytest

from es.reports.terminal import Terminal, in_ascii_locale
from tests.records import record, write_progress
from tests.reports.test_live_view import LIMITS, Screen


@pytest.fixture
def terminal(monkeypatch, tmp_path):
    """Follow a run that has done two updates, on a screen; the result is both."""
    write_progress(tmp_path, 2)

    def follow(*, silent=False, tty=True, term="xterm", locale="C.UTF-8"):
        screen = Screen()
        screen.tty = tty
        monkeypatch.setattr("sys.stdout", screen)
        monkeypatch.setenv("TERM", term)
        monkeypatch.setenv("LC_ALL", locale)
        terminal = Terminal(silent=silent)
        terminal.follow(LIMITS._replace(run_dir=tmp_path), lambda: "nobody")
        return terminal, screen

    return follow


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "view"),
        ({"locale": "C"}, "view"),
        ({"term": "dumb"}, "block"),
        ({"tty": False}, "block"),
        ({"silent": True}, "nothing"),
    ],
)
def test_only_a_terminal_that_can_draw_gets_the_view(terminal, options, expected):
    front, screen = terminal(**options)
    front.begin("update 3", 5)
    front.progress(3)
    front.report(record(3), n=4, cap=5, use_adam=False, best=None)
    front.say("[1] hello")
    front.stop()
    text = screen.getvalue()
    assert ("update 3: 3 of 5 episodes" in text) is (expected == "view")
    assert ("Unperturbed rank: " in text) is (expected == "block")
    assert ("[1] hello\n" in text) is (expected != "nothing")
    assert text.endswith("\x1b[?25h") is (expected == "view")
    assert text.isascii() is ("locale" in options or expected != "view")
    assert bool(text) is (expected != "nothing")


def test_a_command_above_the_view_is_not_broken(terminal):
    front, screen = terminal()
    command = f"python main.py --restore {'a' * 300}"
    front.say(f"Do this:\n  {command}\n")
    front.stop()
    assert f"  {command}\n" in screen.getvalue()


def test_a_run_that_is_carried_on_has_its_curve(terminal):
    front, screen = terminal()
    front.report(record(3)._replace(unperturbed_return=20.0), n=4, cap=5, use_adam=False, best=None)
    front.stop()
    assert "▁▁█" in screen.getvalue()


def test_a_terminal_that_vanishes_is_let_go(terminal, capsys):
    front, screen = terminal()
    view = front._view
    screen.gone = True
    view.refresh()
    assert not view.is_started
    front.close("done")
    warning = "warning: standard output cannot be written (Input/output error)"
    assert capsys.readouterr().err == f"{warning}\ndone\n"


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, False),
        ({"LANG": "en_US.UTF-8"}, False),
        ({"LANG": "C"}, True),
        ({"LANG": "C", "LC_CTYPE": "C.UTF-8"}, True),
        ({"LANG": "C", "LC_CTYPE": "de_DE.UTF-8"}, False),
        ({"LC_CTYPE": "C.UTF-8"}, False),
        ({"LC_ALL": "POSIX", "LANG": "en_US.UTF-8"}, True),
    ],
)
def test_the_locale_decides_on_the_characters(monkeypatch, variables, expected):
    for name in ("LC_ALL", "LC_CTYPE", "LANG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert in_ascii_locale() is expected
