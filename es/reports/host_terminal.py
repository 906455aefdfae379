"""Output of a training that a program has called: in a notebook, below its cell."""

import io
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

from rich.console import Console

from es.reports.live_view import RunLimits, RunView
from es.reports.record import Record
from es.reports.terminal import Terminal, returns_so_far

WIDTH = 100  # of a notebook's output
SECONDS = 0.25  # between drawings


class HostTerminal(Terminal):
    """As the command line's, but shows runs in notebooks, too, and prints nothing when silent."""

    def follow(self, limits: RunLimits, describe_pool: Callable[[], str]) -> None:
        """Show a run live, if this is a notebook or a terminal."""
        if self._silent or not in_notebook():
            super().follow(limits, describe_pool)
            return
        self._view = NotebookView(limits, returns_so_far(limits.run_dir), describe_pool)
        self._view.start()

    def close(self, last_line: str = "") -> None:
        """Print the closing line, unless silent."""
        super().close("" if self._silent else last_line)


class NotebookView(RunView):
    """A run below a notebook's cell, drawn by the master loop itself as often as it is called."""

    def __init__(
        self, limits: RunLimits, returns: Iterable[float], describe_pool: Callable[[], str]
    ) -> None:
        colours = Console(
            file=io.StringIO(), force_terminal=True, force_jupyter=False, color_system="standard",
            width=WIDTH, highlight=False, legacy_windows=False,
        )  # fmt: skip
        self._drawn, self._done, self._on = -SECONDS, 0, False
        super().__init__(colours, limits, returns, describe_pool)

    @property
    def done(self) -> int:
        """Return how many episodes of the batch are done."""
        return self._done

    @done.setter
    def done(self, count: int) -> None:
        self._done = count
        if time.monotonic() - self._drawn >= SECONDS and self._on:
            self.refresh()

    def start(self, refresh: bool = False) -> None:
        """Draw for the first time."""
        from IPython.display import display

        self._on = True
        self._handle: Any = display(  # type: ignore[no-untyped-call]
            self._picture(), raw=True, display_id=True
        )

    def report(self, record: Record, n: int, best: float | None) -> None:
        """Show the figures of an update of n perturbations, and the best score so far."""
        super().report(record, n, best)
        self.done = self.done

    def say(self, text: str) -> None:
        """Print lines below the cell."""
        print(text, flush=True)

    def refresh(self) -> None:
        """Draw the current state in the place of the last one."""
        self._drawn = time.monotonic()
        self._handle.update(self._picture(), raw=True)

    def stop(self) -> None:
        """Leave the lines as they are in the end."""
        if self._on:
            self.refresh()
            self._on = False

    def _picture(self) -> dict[str, str]:
        with self.console.capture() as capture:
            self.console.print(self.get_renderable())
        return {"text/plain": capture.get().rstrip()}


def in_notebook() -> bool:
    """Return whether this is a cell of a notebook, which shows what is displayed."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return shell is not None and hasattr(shell, "kernel")
