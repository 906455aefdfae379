import io
import re
from types import SimpleNamespace

from rich.console import Console

from es.rendering.playing import Playing


def drawn(playing):
    """What it shows now, in a line of 120 characters."""
    console = Console(width=120)
    with console.capture() as captured:
        console.print(playing.get_renderable())
    return captured.get()


def terminal():
    return Console(file=io.StringIO(), force_terminal=True, force_interactive=True, width=120)


def test_a_film_has_a_bar_of_its_frames_and_the_time_left():
    film = SimpleNamespace(frames=0)
    playing = Playing(terminal(), film, episodes=2, steps=1000)
    playing.begin(0)
    assert "Playing episode 1 ..." in drawn(playing)
    film.frames = 500
    assert "frame 500 of at most 2,002" in drawn(playing)
    film.frames = 700
    assert re.search(r"frame 700 of at most 2,002 +\d:\d\d:\d\d +left", drawn(playing))
    playing.begin(1)  # the first episode ended early
    assert re.search(r"Playing episode 2 ... .* frame 700 of at most 1,701 ", drawn(playing))


def test_without_a_film_the_episode_is_named_alone():
    playing = Playing(terminal(), None, episodes=0, steps=1000)
    playing.begin(4)
    assert drawn(playing).split()[1:] == ["Playing", "episode", "5", "..."]


def test_off_a_terminal_nothing_is_printed():
    file = io.StringIO()
    for film in (None, SimpleNamespace(frames=3)):
        with Playing(Console(file=file), film, episodes=1, steps=9) as playing:
            playing.begin(0)
    assert file.getvalue() == ""
