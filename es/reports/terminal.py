"""What a user sees: on a terminal a live view, elsewhere a block of figures per update."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterable

from rich.console import Console

from es.reports.live_view import RunLimits, RunView
from es.reports.progress_csv import read_progress
from es.reports.record import Record
from es.runs.directory import PROGRESS


class AsciiConsole(Console):
    """A console that is drawn on with ASCII characters only."""

    @property
    def encoding(self) -> str:
        """Return what rich chooses its characters by."""
        return "ascii"


class Terminal:
    """Prints to standard output; when silent, only warnings and the closing line."""

    def __init__(self, *, silent: bool) -> None:
        self._silent = silent
        self._view: RunView | None = None
        self._failed = False  # whether standard output has

    def follow(self, limits: RunLimits, describe_pool: Callable[[], str]) -> None:
        """Show a run live, if this is a terminal. describe_pool: returns who plays, in words."""
        console = (AsciiConsole if in_ascii_locale() else Console)(file=sys.stdout, highlight=False)
        if self._silent or not sys.stdout.isatty() or not console.is_interactive:
            return
        returns: Iterable[float] = ()
        with contextlib.suppress(OSError, ValueError):
            returns = read_progress(limits.run_dir / PROGRESS)["unperturbed_return"]
        self._view = RunView(console, limits, returns, describe_pool)
        self._view.start()
        console.show_cursor(True)  # if the program is killed, nobody would do so any more

    def say(self, text: str) -> None:
        """Print lines, above the live view."""
        if not self._silent:
            self._print(text.rstrip("\n") if self._view else text)

    def warn(self, text: str) -> None:
        """Tell of trouble that the run goes on with, even when silent."""
        with contextlib.suppress(OSError):
            print(f"warning: {text}", file=sys.stderr, flush=True)

    def begin(self, name: str, episodes: int) -> None:
        """Tell what is played now."""
        if self._view:
            self._view.begin(name, episodes)

    def progress(self, done: int) -> None:
        """Tell how many of its episodes are done."""
        if self._view:
            self._view.done = done

    def report(
        self, record: Record, *, n: int, cap: int, use_adam: bool, best: float | None
    ) -> None:
        """Show an update, in the live view or as a block.

        cap: steps per training episode at most. best: the best score so far, if there is any.
        """
        if self._view:
            self._view.report(record, best)
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
        """Leave the live view as it is; what comes now is printed below."""
        if self._view:
            self._view.stop()
            self._view = None

    def close(self, last_line: str = "") -> None:
        """Print the closing line, even when silent."""
        self.stop()
        if last_line and not self._print(last_line):
            with contextlib.suppress(OSError):
                print(last_line, file=sys.stderr, flush=True)

    def _print(self, text: str) -> bool:
        """Return whether the text is printed; if not, it is lost, but the run goes on.

        Raise BrokenPipeError the first time that nobody reads any more.
        """
        try:
            print(text, flush=True)
        except OSError as error:
            self.stop()
            if not self._failed:
                self._failed = True
                if isinstance(error, BrokenPipeError):
                    raise
                self.warn(f"standard output cannot be written ({error.strerror})")
            return False
        return True


def in_ascii_locale() -> bool:
    """Return whether other characters might come out as something else."""
    # Python itself sets LC_CTYPE to C.UTF-8 where the locale is C.
    names = os.environ.get("LC_CTYPE", "").replace("C.UTF-8", ""), os.environ.get("LANG")
    locale = os.environ.get("LC_ALL") or names[0] or names[1]
    return locale in ("C", "POSIX")
