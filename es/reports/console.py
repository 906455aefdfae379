"""The output of a run: a live view on a terminal, figures of updates line by line elsewhere."""

from __future__ import annotations

import contextlib
import math
import sys
import time
from array import array
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import rich.console
from rich.columns import Columns
from rich.live import Live
from rich.measure import Measurement
from rich.progress_bar import ProgressBar
from rich.table import Column, Table
from rich.text import Text

from es.checkpoint import RECENT, Counters
from es.errors import in_one_line
from es.reports import PROGRESS
from es.reports.plot import DoubleArray, read_table

if TYPE_CHECKING:  # it imports much
    from es.reports.log import Record

EQUAL_UPDATES = 10  # in a row, before the user is told that nothing is learned from them
LONGEST_BAR, LONGEST_CURVE = 40, 60
BLOCKS = " ▁▂▃▄▅▆▇█"
LEVELS = len(BLOCKS) - 1  # in each of the curve's two lines


class RunLimits(NamedTuple):
    """The name of a run, and the limits at which it ends.

    target: the --target-return. caps: limits of "update", "frames" and "minutes". began: the
    counters that this process started from.
    """

    title: str
    run_dir: Path
    target: float | None
    caps: Mapping[str, float]
    began: Counters


class Console:
    """Print to standard output. When silent, print only warnings and the last line.

    log_every: the seconds between lines of figures where there is no live view; 0: print a block
    after each update. in_program: a program calls the training. When silent, it gets no last line.
    """

    def __init__(self, *, silent: bool, log_every: float = 0.0, in_program: bool = False) -> None:
        self._silent, self._log_every, self._in_program = silent, log_every, in_program
        self._view: LiveView | None = None
        self._notebook: NotebookLine | None = None
        self._printed: float | None = None  # wall_seconds of the last update that was printed
        self._last_block = ""  # of an update that was not printed as a block
        self._equal = 0  # updates in a row whose returns were all equal
        self._advised = False
        self._reader_left = False

    def follow(self, limits: RunLimits, describe_pool: Callable[[], str]) -> None:
        """Show a run live, if this is a terminal. describe_pool: returns the workers in words."""
        screen = rich.console.Console(highlight=False)
        if self._silent:
            return
        if in_notebook():
            self._notebook = NotebookLine()
        elif screen.file.isatty() and screen.is_interactive:
            self._view = LiveView(screen, limits, _earlier_returns(limits.run_dir), describe_pool)
            self._view.start()
            screen.show_cursor(True)  # a program that is killed could not do so

    def say(self, text: str) -> None:
        """Print lines, above the live view."""
        if not self._silent:
            self._print(text.rstrip("\n") if self._view else text)

    def warn(self, text: str) -> None:
        """Print a warning, even when silent."""
        with contextlib.suppress(OSError):
            print(f"warning: {text}", file=sys.stderr, flush=True)

    def begin(self, name: str, episodes: int) -> None:
        """Show the name of the batch that is played now, and how many episodes it has."""
        if self._view:
            self._view.done, self._view.batch = 0, (name, episodes)

    def progress(self, done: int) -> None:
        """Show how many episodes of the batch are done."""
        if self._view:
            self._view.done = done

    def report(
        self, record: Record, *, n: int, cap: int, use_adam: bool, best: float | None
    ) -> None:
        """Show an update. cap: the most steps of a training episode. best: the best score so far.

        The first and the last update are blocks with the labels of pytorch-es, others are lines.
        """
        if self._view:
            self._view.report(record, n, best)
        elif self._notebook:
            self._notebook.show(line(record, n))
        else:
            block = as_block(record, n, cap, use_adam=use_adam)
            if self._printed is None or not self._log_every:
                self.say(block)
                self._printed = record.wall_seconds
            else:
                self._last_block = block
                if record.wall_seconds - self._printed >= self._log_every:
                    self.say(line(record, n))
                    self._printed = record.wall_seconds
        self._advise(record)

    def stop(self) -> None:
        """Stop the live view, whose last lines stay, or show the last update as a block."""
        self._stop_view()
        block, self._last_block = self._last_block, ""
        if block:
            with contextlib.suppress(BrokenPipeError):  # the run is over
                self.say(block)

    def close(self, last_line: str = "") -> None:
        """Print the last line of the run."""
        self.stop()
        if last_line and not (self._silent and self._in_program) and not self._print(last_line):
            with contextlib.suppress(OSError):
                print(last_line, file=sys.stderr, flush=True)

    def _advise(self, record: Record) -> None:
        self._equal = 0 if record.grad_norm else self._equal + 1
        if self._equal == EQUAL_UPDATES and not self._advised:
            self._advised = True
            self.say(
                f"In each of the last {EQUAL_UPDATES} updates all returns were equal (in this one "
                f"{record.return_max:g}), so nothing is learned. Try a larger --sigma (it is "
                f"{record.sigma:g}) or another reward.\n"
            )

    def _stop_view(self) -> None:
        if self._view:
            self._view.stop()
            self._view = None

    def _print(self, text: str) -> bool:
        """Print the text. Return False if it is lost.

        Raise BrokenPipeError the first time that the reader has left.
        """
        try:
            if self._view:
                self._view.say(text)
            else:
                print(text, flush=True)
        except OSError as error:
            self._stop_view()
            if isinstance(error, BrokenPipeError) and not self._reader_left:
                self._reader_left = True
                raise
            return False
        return True


def line(record: Record, n: int) -> str:
    """Return an update of n perturbations in one line."""
    return "  ".join(
        [
            f"update {record.update}",
            f"episodes {record.episodes}",
            f"frames {record.frames}",
            f"return mean {record.return_mean:.6g} std {record.return_std:.6g} "
            f"max {record.return_max:.6g} min {record.return_min:.6g}",
            f"unperturbed {record.unperturbed_return:.6g} "
            f"rank {record.unperturbed_rank} of {n + 1}",
            *([f"not finite {record.non_finite}"] if record.non_finite else []),
            f"{record.steps_per_second:.0f} steps/s",
            f"{record.wall_seconds:.1f} s",
        ]
    )


def as_block(record: Record, n: int, cap: int, *, use_adam: bool) -> str:
    """Return an update of n perturbations with the labels of pytorch-es."""
    rank = f"{record.unperturbed_rank} out of {n + 1} (1 means gradient is uninformative)"
    block = (
        f"Episode num: {record.episodes}\n"
        f"Average reward: {record.return_mean:.6f}\n"
        f"Variance in rewards: {record.return_std**2:.6f}\n"
        f"Max reward: {record.return_max:.6f}\n"
        f"Min reward: {record.return_min:.6f}\n"
        f"Batch size: {n}\n"
        f"Max episode length: {cap}\n"
        f"Sigma: {record.sigma:.6f}\n"
        f"Learning rate: {record.lr:.6f}\n"
        f"Total num frames seen: {record.frames}\n"
        f"Unperturbed reward: {record.unperturbed_return:.6f}\n"
        f"Unperturbed rank: {rank}\n"
        f"Using Adam: {use_adam}\n"
        f"Wall-clock: {record.wall_seconds:.1f} s\n"
        f"Steps per second: {record.steps_per_second:.0f}\n"
    )
    if record.non_finite:
        block += f"Returns not finite: {record.non_finite} (ranked last)\n"
    return block


class NotebookLine:
    """A line below a cell of a notebook. Each update replaces it."""

    def __init__(self) -> None:
        from IPython.display import display

        picture = {"text/plain": ""}
        self._handle: Any = display(picture, raw=True, display_id=True)  # type: ignore[no-untyped-call]

    def show(self, text: str) -> None:
        """Show the text in the place of the last one."""
        self._handle.update({"text/plain": text}, raw=True)


def in_notebook() -> bool:
    """Return whether this is a cell of a notebook, which shows what is displayed."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return shell is not None and hasattr(shell, "kernel")


class LiveView(Live):
    """A run on a terminal. The training sets the state, rich's thread draws it.

    returns: unperturbed returns of earlier updates. describe_pool: returns the workers in words.
    batch: the name and the number of episodes of what is played. done: its finished episodes.
    """

    def __init__(
        self,
        screen: rich.console.Console,
        limits: RunLimits,
        returns: Iterable[float],
        describe_pool: Callable[[], str],
    ) -> None:
        self.batch: tuple[str, int] | None = None
        self.done = 0
        self._limits, self._describe_pool = limits, describe_pool
        self._start = time.monotonic() - limits.began.wall_seconds
        self._returns = array("d", returns)
        self._record: Record | None = None  # of this process's last update
        self._n, self._best = 0, limits.began.best_score
        super().__init__(console=screen, vertical_overflow="crop")

    def report(self, record: Record, n: int, best: float | None) -> None:
        """Show the figures of an update of n perturbations, and the best score so far."""
        self._returns.append(record.unperturbed_return)
        self._record, self._n, self._best = record, n, best

    def say(self, text: str) -> None:
        """Print lines above the view. Do not break commands, which are indented."""
        for each in text.split("\n"):
            self.console.print(Text(each), soft_wrap=each.startswith("  "))

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

    def get_renderable(self) -> rich.console.Group:
        """Return the lines that are drawn."""
        limits, record = self._limits, self._record
        seconds = time.monotonic() - self._start
        returns = np.frombuffer(self._returns.tobytes())
        returns = returns[np.isfinite(returns)]
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
        if self.batch:
            batch, episodes = self.batch
            pace.insert(0, f"{batch}: {self.done} of {episodes} episodes")
        figures = _in_columns(self._figures(record) if record else [])
        ends = Column(no_wrap=True, overflow="crop")
        curve = Table.grid(Column(max_width=LONGEST_CURVE), ends, padding=(0, 1))
        if returns.size:
            scale = f"{_number(returns.max())}\n{_number(returns.min())}"
            curve.add_row(Sparkline(returns), scale)
        return rich.console.Group(
            _in_columns(head, "bold"), bars, _in_columns(pace), figures, curve
        )

    def _nearest_cap(self, seconds: float) -> tuple[float, str]:
        """Return the share of the cap that will be reached first, and words with the time left.

        The time is estimated from the speed of this process. None is known before its first update.
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
        with contextlib.suppress(OverflowError):
            words += f", {timedelta(seconds=int(left))} left"
        return share, words

    def _figures(self, record: Record) -> list[str]:
        items = [
            f"return {_number(record.return_mean)} ± {_number(record.return_std)}",
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

    def __rich_measure__(
        self, screen: rich.console.Console, options: rich.console.ConsoleOptions
    ) -> Measurement:
        return Measurement(1, self.values.size)

    def __rich_console__(
        self, screen: rich.console.Console, options: rich.console.ConsoleOptions
    ) -> rich.console.RenderResult:
        scaled = (self.values - self.values.min()) / (np.ptp(self.values) or 1.0)
        parts = np.array_split(scaled, min(options.max_width, scaled.size))
        heights = [1 + round(float(part.mean()) * (2 * LEVELS - 1)) for part in parts]
        for base in (LEVELS, 0):
            blocks = "".join(BLOCKS[min(max(height - base, 0), LEVELS)] for height in heights)
            yield Text(blocks, "cyan", no_wrap=True)


def _earlier_returns(run_dir: Path) -> Iterable[float]:
    """Return the unperturbed returns of the run in a directory, as far as they can be read."""
    with contextlib.suppress(OSError, ValueError):
        return read_table(run_dir / PROGRESS)["unperturbed_return"]
    return ()


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
