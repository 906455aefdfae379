"""What a user sees: a block of figures per update and, on a terminal, a live line below it."""

from __future__ import annotations

import os
import shlex
import sys
from typing import TextIO

from rich.console import Console as RichConsole
from rich.live import Live
from rich.text import Text

from es.monitor.record import Record


class Console:
    """Prints to standard output; when silent, only the closing line."""

    def __init__(self, *, silent: bool) -> None:
        self._silent = silent
        self._live: Live | None = None
        self._line = ""
        self._refused = False  # whether standard output has once failed
        if not silent and sys.stdout.isatty():
            rich = RichConsole(highlight=False)
            self._live = Live(console=rich, transient=True, get_renderable=self._render)
            self._live.start()

    def say(self, text: str) -> None:
        """Prints lines, above the live one."""
        if not self._silent:
            self._print(text, sys.stdout)

    def warn(self, text: str) -> None:
        """Tells of trouble that the run goes on with, even when silent."""
        self._print(f"warning: {text}", sys.stderr)

    def report(self, record: Record, *, n: int, cap: int, use_adam: bool) -> None:
        """Prints the block of an update. cap: steps per training episode at most."""
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

    def progress(self, line: str) -> None:
        """Sets the live line."""
        self._line = line

    def close(self, last_line: str = "") -> None:
        """Removes the live line and prints the closing one, even when silent."""
        if self._live:
            self._live.stop()
            self._live = None
        if last_line and not self._print(last_line, sys.stdout):
            self._print(last_line, sys.stderr)

    def _print(self, text: str, stream: TextIO) -> bool:
        """Prints lines, unless the system refuses: then the words are lost, but not the run."""
        try:
            if self._live:
                # As text, so that brackets are not taken for rich's markup.
                self._live.console.print(Text(text))
            else:
                print(text, file=stream, flush=True)
        except OSError as error:
            if stream is sys.stderr:
                return False
            if isinstance(error, BrokenPipeError):
                raise  # nobody reads any more
            if not self._refused:
                self._refused = True
                self.warn(f"standard output cannot be written ({error.strerror})")
            return False
        return True

    def _render(self) -> Text:
        return Text(self._line, style="dim", no_wrap=True, overflow="ellipsis")


def command(*arguments: object, program: str | None = None) -> str:
    """The command line that starts this program, or one beside it, with other arguments."""
    # The interpreter of a virtual environment in this folder need not be the shell's 'python'.
    name = os.path.relpath(sys.executable)
    if name.startswith(os.pardir):
        name = "python"
    path = sys.argv[0] if program is None else os.path.join(os.path.dirname(sys.argv[0]), program)
    return shlex.join([name, path, *map(str, arguments)])
