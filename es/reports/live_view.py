"""The live view of a run: its progress in a few lines that rich lays out and draws."""

import contextlib
import math
import time
from array import array
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.columns import Columns
from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.live import Live
from rich.measure import Measurement
from rich.progress_bar import ProgressBar
from rich.table import Column, Table
from rich.text import Text

from es.algorithm.noise import DoubleArray
from es.checkpoint import RECENT, Counters
from es.errors import in_one_line
from es.reports.record import Record

LONGEST_BAR, LONGEST_CURVE = 40, 60
LONGEST_LEFT = 1e9  # seconds; a guess of more says nothing
LARGEST = 1e300  # smaller returns have finite differences
BLOCKS, ASCII_BLOCKS = " ▁▂▃▄▅▆▇█", " ...:::||"
LEVELS = len(BLOCKS) - 1  # in each of the curve's two lines


class RunLimits(NamedTuple):
    """The name of a run, and the limits at which it ends.

    caps: limits of "update", "frames" and "minutes". began: the counters that this process started
    from.
    """

    title: str
    run_dir: Path
    target: float | None
    caps: Mapping[str, float]
    began: Counters


class RunView(Live):
    """A run on a terminal: the master loop sets the state, rich's thread draws it.

    returns: unperturbed returns of earlier updates. describe_pool: returns the workers in words.
    """

    def __init__(
        self,
        console: Console,
        limits: RunLimits,
        returns: Iterable[float],
        describe_pool: Callable[[], str],
    ) -> None:
        self._limits, self._describe_pool = limits, describe_pool
        self._start = time.monotonic() - limits.began.wall_seconds
        self._returns = array("d", returns)
        self._record: Record | None = None  # of this process's last update
        self._n, self._best = 0, limits.began.best_score
        self._batch: tuple[str, int] | None = None
        self.done = 0  # episodes of the batch
        super().__init__(console=console, vertical_overflow="crop")

    def begin(self, name: str, episodes: int) -> None:
        """Show a batch, none of whose episodes is done."""
        self.done, self._batch = 0, (name, episodes)

    def report(self, record: Record, n: int, best: float | None) -> None:
        """Show the figures of an update of n perturbations, and the best score so far."""
        self._returns.append(record.unperturbed_return)
        self._record, self._n, self._best = record, n, best

    def say(self, text: str) -> None:
        """Print lines above the view.

        Commands, which are indented, are not broken, so that they can be copied.
        """
        for line in text.split("\n"):
            self.console.print(Text(line), soft_wrap=line.startswith("  "))

    def refresh(self) -> None:
        """Draw the current state, or stop if the terminal has gone."""
        try:
            super().refresh()
        except OSError:
            self.stop()

    def stop(self) -> None:
        """Leave the lines as they are."""
        with contextlib.suppress(OSError):
            super().stop()

    def get_renderable(self) -> Group:
        """Return the lines that are drawn."""
        limits, record = self._limits, self._record
        seconds = time.monotonic() - self._start
        returns = np.frombuffer(self._returns.tobytes())
        returns = returns[np.abs(returns) < LARGEST]
        head = [limits.title, in_one_line(str(limits.run_dir)), self._describe_pool()]
        name, bar = Column(no_wrap=True, min_width=4), Column(max_width=LONGEST_BAR)
        percent = Column(no_wrap=True, min_width=4, justify="right")
        words = Column(no_wrap=True, overflow="crop")
        bars = Table.grid(name, bar, percent, words, padding=(0, 1))
        if limits.target is not None:
            bars.add_row("goal", *_bar(*_goal(returns, limits.target)))
        if limits.caps:
            bars.add_row("cap", *_bar(*self._nearest_cap(seconds)))
        pace = [f"elapsed {timedelta(seconds=int(seconds))}"]
        if record:
            pace.insert(0, f"{record.steps_per_second:,.0f} steps/s")
        if self._batch:
            batch, episodes = self._batch
            pace.insert(0, f"{batch}: {self.done} of {episodes} episodes")
        figures = _in_columns(self._figures(record) if record else [])
        ends = Column(no_wrap=True, overflow="crop")
        curve = Table.grid(Column(max_width=LONGEST_CURVE), ends, padding=(0, 1))
        if returns.size:
            scale = f"{_number(returns.max())}\n{_number(returns.min())}"
            curve.add_row(Sparkline(returns), scale)
        return Group(_in_columns(head, "bold"), bars, _in_columns(pace), figures, curve)

    def _nearest_cap(self, seconds: float) -> tuple[float, str]:
        """Return the share of the cap that will be reached first, and words with the time left.

        The time is estimated from the speed of this process; none is known before its first update.
        """
        began, last = self._limits.began, self._record or self._limits.began
        spent, since = last.wall_seconds - began.wall_seconds, seconds - last.wall_seconds
        found: list[tuple[float, float, str]] = []
        for name, most in self._limits.caps.items():
            if name == "minutes":
                share, left = seconds / 60 / most, 60 * most - seconds
                words = f"{seconds / 60:.1f} of {most:g} minutes"
            else:
                now, done = getattr(last, name), getattr(last, name) - getattr(began, name)
                share, left = now / most, (most - now) * spent / done - since if done else math.inf
                words = f"{now:,} of {most:,} {name.removesuffix('s')}s"
            found.append((max(left, 0.0), min(share, 1.0), words))
        left, share, words = min(found)
        if left < LONGEST_LEFT:
            words += f", {timedelta(seconds=int(left))} left"
        return share, words

    def _figures(self, record: Record) -> list[str]:
        sign = "+-" if self.console.options.ascii_only else "±"
        items = [
            f"return {_number(record.return_mean)} {sign} {_number(record.return_std)}",
            f"max {_number(record.return_max)}",
            f"min {_number(record.return_min)}",
            f"unperturbed {_number(record.unperturbed_return)}",
            f"rank {record.unperturbed_rank} of {self._n + 1}",
        ]
        if self._best is not None:
            items.append(f"best {_number(self._best)}")
        if record.non_finite:
            items.append(f"{record.non_finite} not finite")
        return items


class Sparkline(NamedTuple):
    """Numbers that rich draws as two lines of blocks, over the available width."""

    values: DoubleArray

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(1, self.values.size)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        scaled = (self.values - self.values.min()) / (np.ptp(self.values) or 1.0)
        parts = np.array_split(scaled, min(options.max_width, scaled.size))
        heights = [1 + round(float(part.mean()) * (2 * LEVELS - 1)) for part in parts]
        blocks = ASCII_BLOCKS if options.ascii_only else BLOCKS
        for base in (LEVELS, 0):
            line = "".join(blocks[min(max(height - base, 0), LEVELS)] for height in heights)
            yield Text(line, "cyan", no_wrap=True)


def _goal(returns: DoubleArray, target: float) -> tuple[float, str]:
    """Return the share of the way from the first return to the target, and words."""
    if not returns.size:
        return 0.0, _number(target)
    first, last = returns[0], float(returns[-RECENT:].mean())
    words = f"{_number(last)} of {_number(target)}"
    if last >= target:
        return 1.0, f"{words} (evaluations decide)"
    return (last - first) / (target - first) if first < last else 0.0, words


def _bar(share: float, words: str) -> tuple[ProgressBar, str, str]:
    bar = ProgressBar(total=1.0, completed=share, complete_style="green", finished_style="green")
    return bar, f"{math.floor(100 * share)}%", words


def _in_columns(items: Iterable[str], style: str = "") -> Columns:
    texts = [Text(item, style, no_wrap=True, overflow="crop") for item in items]
    return Columns(texts, padding=(0, 2))


def _number(value: float) -> str:
    return f"{value:.2f}" if abs(value) < 1e6 else f"{value:.4g}"
