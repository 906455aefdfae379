"""The live view on a terminal: drawn anew four times a second, as long as the terminal is there."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.cells import cell_len
from rich.console import Console
from rich.control import Control
from rich.live import Live
from rich.segment import ControlType
from rich.text import Text

from es.reports.live_view import Batch, Course, State, view
from es.reports.record import COLUMNS, Record
from es.reports.sparkline import History
from es.runs.directory import PROGRESS

PER_SECOND = 4
ERASED = (ControlType.ERASE_IN_LINE, 2)


class Display(Live):
    """Shows a run from now on; its thread reads one `State`, which updates put in place whole.

    describe: who plays, in words; called by that thread.
    """

    def __init__(self, console: Console, course: Course, describe: Callable[[], str]) -> None:
        self.gone = False  # whether the terminal is
        self._describe, self._ascii_only = describe, needs_ascii(console.encoding)
        self._start = time.monotonic() - course.began.wall_seconds
        self._history, self._shown = History(), ""
        for value in _returns_so_far(course.run_dir):
            self._history.add(value)
        self.state = State(
            course,
            best=course.began.best_score,
            curve=self._history.curve(),
            first=self._history.first,
        )
        super().__init__(console=console, get_renderable=self._view, refresh_per_second=PER_SECOND)
        self.start()
        console.show_cursor(True)  # if the program is killed, nobody would do so any more

    def begin(self, name: str, episodes: int) -> Batch:
        """Shows a batch, the number of whose episodes that are done its owner keeps up to date."""
        batch = Batch(name, episodes)
        self.state = self.state._replace(batch=batch)
        return batch

    def report(self, record: Record, best: float | None) -> None:
        """Shows the figures of an update, and the best score so far."""
        self._history.add(record.unperturbed_return)
        self.state = self.state._replace(
            record=record, best=best, curve=self._history.curve(), first=self._history.first
        )

    def refresh(self) -> None:
        """Draws what there is now, unless the terminal has gone."""
        if self.gone:
            return
        try:
            with self._lock:
                self._erase_what_wrapped()
                super().refresh()
        except OSError:
            self.gone = True

    def _view(self) -> Text:
        width, height = self.console.size
        text = view(
            self.state,
            time.monotonic() - self._start,
            self._describe(),
            width=width,
            height=height,
            ascii_only=self._ascii_only,
        )
        self._shown = text.plain
        return text

    def _erase_what_wrapped(self) -> None:
        """Where a terminal has become narrower, its lines have become more than rich knows of."""
        width = max(self.console.width, 1)
        more = sum((cell_len(line) - 1) // width for line in self._shown.splitlines() if line)
        if more:
            upwards = ((ControlType.CURSOR_UP, 1), ERASED) * more
            self.console.control(Control(ControlType.CARRIAGE_RETURN, ERASED, *upwards))


def can_be_drawn_on(console: Console) -> bool:
    """Whether the cursor can be moved there."""
    return console.is_terminal and not console.is_dumb_terminal


def needs_ascii(encoding: str) -> bool:
    """Whether other characters might come out as something else."""
    names = [os.environ.get(name) for name in ("LC_ALL", "LC_CTYPE", "LANG")]
    if names[1] == "C.UTF-8":  # which Python itself sets, where the locale is C
        del names[1]
    locale = next(filter(None, names), "")
    return locale in ("C", "POSIX") or not encoding.startswith("utf")


def _returns_so_far(run_dir: Path) -> Iterator[float]:
    """The unperturbed returns of the updates before."""
    at = COLUMNS.index("unperturbed_return")
    with (run_dir / PROGRESS).open(encoding="utf-8", errors="replace") as file:
        for line in file:
            with contextlib.suppress(ValueError):  # such as the header
                yield float(line.split(",", at + 1)[at])
