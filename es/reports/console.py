"""The output of a run: a live view on a terminal, figures of updates line by line elsewhere."""

from __future__ import annotations

import contextlib
import math
import sys
import time
from array import array
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import rich.console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Column, Table
from rich.text import Text

from es.algorithm.noise import DoubleArray
from es.checkpoint import RECENT, Counters
from es.errors import in_one_line
from es.reports import PROGRESS
from es.reports.plot import read_table

if TYPE_CHECKING:  # it imports much
    from es.reports.log import Record

EQUAL_UPDATES = 10  # in a row, before the user is told that nothing is learned from them
LONGEST_BAR, LONGEST_CURVE = 40, 60
BLOCKS = "▁▂▃▄▅▆▇█"


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
    after each update. in_program: a program calls the training; if silent, print no last line.
    """

    def __init__(self, *, silent: bool, log_every: float = 0.0, in_program: bool = False) -> None:
        self._silent, self._log_every, self._in_program = silent, log_every, in_program
        self._view: LiveView | None = None
        self._cell: Any = None  # of a notebook, whose output each update replaces
        self._printed = -math.inf  # wall_seconds of the last update that was printed
        self._unprinted = ""  # the line of a later one
        self._equal = 0  # updates in a row whose returns were all equal
        self._reader_left = False

    def follow(self, limits: RunLimits) -> None:
        """Show a run live, if this is a terminal or a notebook."""
        if self._silent:
            return
        screen = rich.console.Console(highlight=False)
        if screen.is_jupyter:
            from IPython.display import display

            self._cell = display({"text/plain": ""}, raw=True, display_id=True)  # type: ignore[no-untyped-call]
        elif screen.file.isatty() and screen.is_interactive:
            self._view = LiveView(screen, limits)
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

    def progress(self, name: str, done: int, episodes: int, workers: str) -> None:
        """Show a batch: its name, its finished episodes, how many it has, who plays it."""
        if self._view:
            self._view.batch = f"{name}: {done} of {episodes} episodes"
            self._view.workers = workers

    def report(
        self, record: Record, *, n: int, cap: int, use_adam: bool, best: float | None
    ) -> None:
        """Show an update. cap: of the steps of a training episode. best: the best score so far."""
        if self._view:
            self._view.report(record, n, best)
        elif self._cell:
            self._cell.update({"text/plain": line(record, n)}, raw=True)
        elif not self._log_every:
            self.say(as_block(record, n, cap, use_adam=use_adam))
        else:
            self._unprinted = line(record, n)
            if record.wall_seconds - self._printed >= self._log_every:
                self._printed = record.wall_seconds
                self._say_unprinted()
        self._advise(record)

    def stop(self) -> None:
        """Stop the live view, whose last lines stay, or print the line of the last update."""
        self._stop_view()
        with contextlib.suppress(BrokenPipeError):  # the run is over
            self._say_unprinted()

    def close(self, last_line: str = "") -> None:
        """Print the last line of the run."""
        self.stop()
        if last_line and not (self._silent and self._in_program) and not self._print(last_line):
            with contextlib.suppress(OSError):
                print(last_line, file=sys.stderr, flush=True)

    def _advise(self, record: Record) -> None:
        self._equal = 0 if record.grad_norm else self._equal + 1
        if self._equal == EQUAL_UPDATES:
            self.say(
                f"In each of the last {EQUAL_UPDATES} updates the perturbations made no difference "
                f"to the returns (the largest is {record.return_max:g}), so nothing is learned. "
                f"Try a larger --sigma (it is {record.sigma:g}) or another reward.\n"
            )

    def _say_unprinted(self) -> None:
        words, self._unprinted = self._unprinted, ""
        if words:
            self.say(words)

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
                self._view.console.print(Text(text), soft_wrap=True)
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


class LiveView(Live):
    """A run on a terminal. The training sets the state, rich's thread draws it.

    batch, workers: what is played and who plays it, in words.
    """

    def __init__(self, screen: rich.console.Console, limits: RunLimits) -> None:
        self.batch = self.workers = ""
        self._limits = limits
        self._start = time.monotonic() - limits.began.wall_seconds
        self._returns = array("d")  # of the policy itself, those of earlier updates included
        with contextlib.suppress(OSError, ValueError):  # the table is new, or damaged
            self._returns.extend(read_table(limits.run_dir / PROGRESS)["unperturbed_return"])
        self._record: Record | None = None  # of this process's last update
        self._n, self._best = 0, limits.began.best_score
        super().__init__(console=screen, vertical_overflow="crop")

    def report(self, record: Record, n: int, best: float | None) -> None:
        """Show the figures of an update of n perturbations, and the best score so far."""
        self._returns.append(record.unperturbed_return)
        self._record, self._n, self._best = record, n, best

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
        returns = np.frombuffer(self._returns.tobytes())
        returns = returns[np.isfinite(returns)]
        head = [limits.title, in_one_line(str(limits.run_dir)), self.workers]
        bars = Table.grid("", Column(max_width=LONGEST_BAR), "", "", padding=(0, 1))
        if limits.target is not None:
            bars.add_row("goal", *_bar(*_goal(returns, limits.target)))
        for name, most in limits.caps.items():
            bars.add_row("cap", *_bar(*self._used(name, most)))
        pace = [f"elapsed {timedelta(seconds=int(time.monotonic() - self._start))}"]
        if record:
            pace.insert(0, f"{record.steps_per_second:,.0f} steps/s")
        if self.batch:
            pace.insert(0, self.batch)
        view = rich.console.Group(Text("  ".join(head), "bold"), bars, Text("  ".join(pace)))
        if record:
            view.renderables.append(Text("  ".join(self._figures(record))))
        if returns.size:
            ends = f" {_number(returns.min())} to {_number(returns.max())}"
            view.renderables.append(Text.assemble((sparkline(returns), "cyan"), ends))
        return view

    def _used(self, name: str, most: float) -> tuple[float, str]:
        """Return the share of a limit that is used up, and words with the time left.

        The time is estimated from the speed of this process.
        """

        def at(state: Record | Counters) -> float:
            return state.wall_seconds / 60 if name == "minutes" else getattr(state, name)

        began, last = self._limits.began, self._record or self._limits.began
        words = f"{round(at(last), 1):,} of {most:,} {name.removesuffix('s')}s"
        with contextlib.suppress(ArithmeticError):  # there was no update yet
            speed = (at(last) - at(began)) / (last.wall_seconds - began.wall_seconds)
            words += f", {timedelta(seconds=int(max(most - at(last), 0) / speed))} left"
        return min(at(last) / most, 1.0), words

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


def sparkline(values: DoubleArray) -> str:
    """Return the values in a line of blocks, each of which is the mean of equally many."""
    scaled = (values - values.min()) / (np.ptp(values) or 1.0)
    parts = np.array_split(scaled, min(LONGEST_CURVE, scaled.size))
    return "".join(BLOCKS[round(part.mean() * (len(BLOCKS) - 1))] for part in parts)


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


def _number(value: float) -> str:
    return f"{value:.2f}" if abs(value) < 1e6 else f"{value:.4g}"
