"""Output for the user: a live view on a terminal, figures of updates one by one elsewhere."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from rich.console import Console

from es.reports.live_view import RunLimits, RunView
from es.reports.log import UpdateLog
from es.reports.record import Record
from es.reports.tables import read_progress
from es.run import PROGRESS


class AsciiConsole(Console):
    """A console that shows only ASCII characters."""

    @property
    def encoding(self) -> str:
        """Return the encoding by which rich chooses its characters."""
        return "ascii"


class Terminal:
    """Print to standard output; when silent, only warnings and the closing line.

    log_every: the seconds between lines of figures where there is no live view.
    """

    def __init__(self, *, silent: bool, log_every: float = 0.0) -> None:
        self._silent, self._log = silent, UpdateLog(log_every)
        self._view: RunView | None = None
        self._failed = False  # whether standard output could not be written

    def follow(self, limits: RunLimits, describe_pool: Callable[[], str]) -> None:
        """Show a run live, if this is a terminal. describe_pool: returns the workers in words."""
        console = (AsciiConsole if in_ascii_locale() else Console)(file=sys.stdout, highlight=False)
        if self._silent or not sys.stdout.isatty() or not console.is_interactive:
            return
        self._view = RunView(console, limits, returns_so_far(limits.run_dir), describe_pool)
        self._view.start()
        console.show_cursor(True)  # a program that is killed could not do so

    def say(self, text: str) -> None:
        """Print lines, above the live view."""
        if not self._silent:
            self._print(text.rstrip("\n") if self._view else text)

    def warn(self, text: str) -> None:
        """Print a warning, even when silent; the run goes on."""
        with contextlib.suppress(OSError):
            print(f"warning: {text}", file=sys.stderr, flush=True)

    def begin(self, name: str, episodes: int) -> None:
        """Show the name of the batch that is played now, and how many episodes it has."""
        if self._view:
            self._view.begin(name, episodes)

    def progress(self, done: int) -> None:
        """Show how many episodes of the batch are done."""
        if self._view:
            self._view.done = done

    def report(
        self, record: Record, *, n: int, cap: int, use_adam: bool, best: float | None
    ) -> None:
        """Show an update, in the live view or as the log has it.

        cap: the most steps of a training episode. best: the best score so far, if there is one.
        """
        if self._view:
            self._view.report(record, n, best)
            return
        if text := self._log.add(record, n=n, cap=cap, use_adam=use_adam):
            self.say(text)

    def stop(self) -> None:
        """Stop the live view, whose last lines stay, or show the last update as a block."""
        self._stop_view()
        if block := self._log.end():
            with contextlib.suppress(BrokenPipeError):  # the run is over
                self.say(block)

    def close(self, last_line: str = "") -> None:
        """Print the closing line, even when silent."""
        self.stop()
        if last_line and not self._print(last_line):
            with contextlib.suppress(OSError):
                print(last_line, file=sys.stderr, flush=True)

    def _stop_view(self) -> None:
        if self._view:
            self._view.stop()
            self._view = None

    def _print(self, text: str) -> bool:
        """Print the text; return False if it is lost, in which case the run goes on.

        Raise BrokenPipeError the first time that the reader has left.
        """
        try:
            if self._view:
                self._view.say(text)
            else:
                print(text, flush=True)
        except OSError as error:
            self._stop_view()
            if not self._failed:
                self._failed = True
                if isinstance(error, BrokenPipeError):
                    raise
                self.warn(f"standard output cannot be written ({error.strerror})")
            return False
        return True


def returns_so_far(run_dir: Path) -> Iterable[float]:
    """Return the unperturbed returns of the run in a directory, as far as they can be read."""
    with contextlib.suppress(OSError, ValueError):
        return read_progress(run_dir / PROGRESS)["unperturbed_return"]
    return ()


def in_ascii_locale() -> bool:
    """Return whether characters other than ASCII may be shown wrongly."""
    # Python itself sets LC_CTYPE to C.UTF-8 where the locale is C.
    names = os.environ.get("LC_CTYPE", "").replace("C.UTF-8", ""), os.environ.get("LANG")
    locale = os.environ.get("LC_ALL") or names[0] or names[1]
    return locale in ("C", "POSIX")
