"""What a user sees: on a terminal a live view, elsewhere a block of figures per update."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Callable
from typing import TextIO

from rich.console import Console as RichConsole
from rich.text import Text

from es.reports.live_display import Display, can_be_drawn_on
from es.reports.live_view import Batch, Course
from es.reports.record import Record


class Console:
    """Prints to standard output; when silent, only the closing line."""

    def __init__(self, *, silent: bool) -> None:
        self._silent = silent
        self._display: Display | None = None
        self._batch = Batch("", 0)
        self._refused = False  # whether standard output has once failed

    def follow(self, course: Course, describe: Callable[[], str]) -> None:
        """Shows a run on the terminal, if this is one. describe: who plays, in a few words."""
        if not self._silent and sys.stdout.isatty():
            rich = RichConsole(highlight=False)
            if can_be_drawn_on(rich):
                self._display = Display(rich, course, describe)

    def say(self, text: str) -> None:
        """Prints lines, above the live view."""
        if not self._silent:
            self._print(text, sys.stdout)

    def warn(self, text: str) -> None:
        """Tells of trouble that the run goes on with, even when silent."""
        self._print(f"warning: {text}", sys.stderr)

    def begin(self, name: str, episodes: int) -> None:
        """Tells what is played now."""
        if self._display:
            self._batch = self._display.begin(name, episodes)

    def progress(self, done: int) -> None:
        """Tells how many of its episodes are done."""
        self._batch.done = done

    def report(
        self, record: Record, *, n: int, cap: int, use_adam: bool, best: float | None
    ) -> None:
        """Shows an update, in the live view or as a block.

        cap: steps per training episode at most. best: the best score so far, if there is any.
        """
        if self._display:
            self._display.report(record, best)
            return
        rank = f"{record.unperturbed_rank} out of {n + 1} (1 means gradient is uninformative)"
        figures = {
            "Episode num": f"{record.episodes}",
            "Average reward": f"{record.return_mean:.6f}",
            "Variance in rewards": f"{record.return_std**2:.6f}",
            "Max reward": f"{record.return_max:.6f}",
            "Min reward": f"{record.return_min:.6f}",
            "Batch size": f"{n}",
            "Max episode length": f"{cap}",
            "Sigma": f"{record.sigma:.6f}",
            "Learning rate": f"{record.lr:.6f}",
            "Total num frames seen": f"{record.frames}",
            "Unperturbed reward": f"{record.unperturbed_return:.6f}",
            "Unperturbed rank": rank,
            "Using Adam": f"{use_adam}",
            "Wall-clock": f"{record.wall_seconds:.1f} s",
            "Steps per second": f"{record.steps_per_second:.0f}",
        }
        if record.non_finite:
            figures["Returns not finite"] = f"{record.non_finite} (ranked last)"
        self.say("".join(f"{label}: {value}\n" for label, value in figures.items()))

    def stop(self) -> None:
        """Leaves the live view as it is; what comes now is printed below."""
        display, self._display = self._display, None
        if display:
            with contextlib.suppress(OSError):  # the terminal has gone
                display.stop()

    def close(self, last_line: str = "") -> None:
        """Prints the closing line, even when silent."""
        self.stop()
        if last_line and not self._print(last_line, sys.stdout):
            self._print(last_line, sys.stderr)

    def _print(self, text: str, stream: TextIO) -> bool:
        """Prints lines, unless the system refuses: then the words are lost, but not the run."""
        if self._display and self._display.gone:
            self.stop()
        try:
            if self._display:
                # As text, so that brackets are not taken for rich's markup.
                self._display.console.print(Text(text.rstrip("\n")))
            else:
                print(text, file=stream, flush=True)
        except OSError as error:
            self.stop()
            if stream is sys.stderr:
                return False
            before, self._refused = self._refused, True
            if not before:
                if isinstance(error, BrokenPipeError):
                    raise  # nobody reads any more
                self.warn(f"standard output cannot be written ({error.strerror})")
            return False
        return True


def command(*arguments: object, program: str | None = None) -> str:
    """The command line that starts this program, or one beside it, with other arguments."""
    # The interpreter of a virtual environment in this folder need not be the shell's 'python'.
    name = os.path.relpath(sys.executable)
    if name.startswith(os.pardir):
        name = "python"
    path = sys.argv[0] if program is None else os.path.join(os.path.dirname(sys.argv[0]), program)
    return shlex.join([name, path, *map(str, arguments)])
