"""Pictures: the learning curve of a run, and the comparison of several.

Matplotlib takes longer over a picture than a small environment over an update, so a process of low
priority draws the learning curve beside the run.
"""

from __future__ import annotations

import contextlib
import io
import logging
import math
import os
import sys
import textwrap
import time
import tomllib
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from es.algorithm.noise import DoubleArray
from es.checkpoint import replace
from es.reports import CURVE, PROGRESS, SETTINGS
from es.rollouts.processes import Helper

if TYPE_CHECKING:  # Matplotlib is imported where something is drawn
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter

Line = tuple[DoubleArray, DoubleArray]  # (points,) each: x and y

# The colours of Okabe and Ito (2008), which colour-blind people can tell apart, without the yellow,
# which is too pale for a line.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
DASHES = ((6, 2), (6, 2, 1, 2), (1.5, 1.5), (6, 2, 1, 2, 1, 2), (3, 1))
STYLES = ("-", *((0, dashes) for dashes in DASHES))
WIDTH, HEIGHT = 8.0, 5.0  # inches of axes with their labels
LABEL_WIDTH = 60  # characters of a legend's line
POINTS = 500  # of a mean line
REDRAW_SECONDS = 10.0
HURRIED_SECONDS = 2.2  # to wait for the last picture after Ctrl-C


class Curve:
    """Redraw the learning curve of the run in `path` from time to time.

    One process draws all pictures. It imports Matplotlib at once. Raise OSError if it cannot start.
    """

    def __init__(self, path: Path) -> None:
        self._words = (__name__, str(path.resolve()))
        self._helper = Helper(*self._words)
        self._requested = False
        self._due = time.monotonic() + REDRAW_SECONDS

    def request(self) -> None:
        """Redraw the picture, unless that was done a few seconds ago."""
        self._requested = True
        if time.monotonic() >= self._due:
            self._draw()
            self._due = time.monotonic() + REDRAW_SECONDS

    def close(self, hurried: Callable[[], bool]) -> str:
        """Draw the last state. Return why that has failed, or else "".

        hurried: returns whether the user does not want to wait. Raise OSError if no process can
        start.
        """
        start = time.monotonic()
        if not self._requested:
            self._helper.end()
            return ""
        self._draw()
        assert self._helper.stdin is not None
        self._helper.stdin.close()  # so that it ends
        self._helper.stdin = None
        while self._helper.poll() is None:
            if hurried() and time.monotonic() - start >= HURRIED_SECONDS:
                self._helper.end()
                return "it was not drawn in time"
            time.sleep(0.01)
        return self._helper.end()

    def _draw(self) -> None:
        """Have the picture drawn."""
        if self._helper.poll() is not None:  # as it does after an error
            self._helper.end()
            self._helper = Helper(*self._words)
        assert self._helper.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has just ended
            os.write(self._helper.stdin.fileno(), b"\n")


def read_table(path: Path) -> dict[str, DoubleArray]:
    """Return the columns of a run's table by name: (rows,) each.

    Raise OSError, or ValueError if the file is no such table.
    """
    # NumPy warns of a table without rows.
    with path.open(encoding="utf-8") as file, warnings.catch_warnings(action="ignore"):
        names = file.readline().strip().split(",")
        if "update" not in names:
            raise ValueError("it has no column update")
        rows = np.loadtxt(file, delimiter=",", ndmin=2).reshape(-1, len(names))
    return dict(zip(names, rows.T, strict=True))


def running_mean(values: DoubleArray, window: int) -> DoubleArray:
    """Return (updates,): the mean of the finite ones among the last `window` values up to each.

    The first means are of fewer values. Where no value is finite, the mean is NaN.
    """
    if not values.size:
        return values
    known, ones = np.isfinite(values), np.ones(min(window, values.size))
    sums = np.convolve(np.where(known, values, 0.0), ones)[: values.size]
    counts = np.convolve(known, ones)[: values.size]
    return np.divide(sums, counts, out=np.full(values.size, np.nan), where=counts > 0.5)


def smoothing_window(updates: int) -> int:
    """Return the number of updates over which a picture of a run is smoothed."""
    # A mean over more takes minutes in long runs: its cost is updates times window.
    return max(2, min(10, updates // 5), min(1000, updates // 50))


def mean_line(lines: Sequence[Line]) -> tuple[DoubleArray, DoubleArray, DoubleArray]:
    """Return x, mean and standard deviation, (points,) each, of the lines where all have values.

    A line is straight between its points. If the lines have no stretch in common, there are no
    points. The deviation of a single line is 0.
    """
    first, last = max(at[0] for at, _ in lines), min(at[-1] for at, _ in lines)
    grid = np.unique(np.linspace(first, last, POINTS)) if first <= last else np.empty(0)
    values = np.array([np.interp(grid, at, line) for at, line in lines])
    return grid, values.mean(axis=0), values.std(axis=0, ddof=min(1, len(lines) - 1))


def draw_run(path: Path) -> None:
    """Replace the learning curve of a run. Raise OSError, or ValueError for a damaged table."""
    settings = tomllib.loads((path / SETTINGS).read_text(encoding="utf-8"))
    table = read_table(path / PROGRESS)
    save(learning_curve(table, settings["env-name"], settings.get("target-return")), path / CURVE)


def learning_curve(
    progress: dict[str, DoubleArray], title: str, target: float | None = None
) -> Figure:
    """Draw a run's returns. progress: columns of progress.csv. target: the --target-return."""
    figure, (axes,) = new_figure([title], "episodes", "return (sum of an episode's rewards)")
    axes.xaxis.set_major_formatter(in_thousands())
    episodes, unperturbed = progress["episodes"], progress["unperturbed_return"]
    axes.fill_between(
        episodes, progress["return_min"], progress["return_max"],
        color="0.85", linewidth=0, label="population: min to max",
    )  # fmt: skip
    window = smoothing_window(episodes.size)
    curve(axes, (episodes, progress["return_mean"]), "population: average", index=1)
    smoothed = episodes, running_mean(unperturbed, window)
    label = f"unperturbed: mean of {window} updates (pale: each one)"
    curve(axes, smoothed, label, index=0, runs=[(episodes, unperturbed)])
    if target is not None:
        draw_target(axes, target)
    if episodes.size:
        _count_frames(axes, np.append(0, episodes), np.append(0, progress["frames"]))
    add_legend(figure)
    return figure


def curve(
    axes: Axes, line: Line, label: str, *, index: int,
    runs: Sequence[Line] = (), spread: DoubleArray | None = None,
) -> None:  # fmt: skip
    """Draw a line, with pale lines of the runs behind it, and a band around it.

    index: of the colour and the style. spread: (points,), of the band to each side. A line of fewer
    than three points has dots.
    """
    colour = COLOURS[index % len(COLOURS)]
    for at, values in runs:
        dots = "." if at.size < 3 else None
        axes.plot(at, values, color=colour, linewidth=0.8, alpha=0.4, marker=dots)
    at, values = line
    if spread is not None:
        axes.fill_between(
            at, values - spread, values + spread, color=colour, alpha=0.18, linewidth=0
        )
    dots = "." if np.isfinite(values).sum() < 3 else None
    style = STYLES[index % len(STYLES)]
    axes.plot(
        at, values, color=colour, linewidth=2, linestyle=style, marker=dots, label=label, zorder=3
    )


def _count_frames(axes: Axes, episodes: DoubleArray, frames: DoubleArray) -> None:
    """Add an axis at the top that shows the frames played up to each number of episodes."""
    spell = in_thousands()

    def frames_at(episode: float, _: float) -> str:
        if not 0 <= episode <= episodes[-1]:
            return ""
        return spell(float(f"{np.interp(episode, episodes, frames):.3g}"))

    above = axes.secondary_xaxis("top")
    above.set_xlabel("frames (steps of these episodes)")
    above.xaxis.set_major_formatter(frames_at)


def new_figure(titles: Sequence[str], x_label: str, y_label: str) -> tuple[Figure, list[Axes]]:
    """Return an empty picture, with axes for each title, in a grid."""
    # Matplotlib reports missing fonts, glyphs and cache folders in log lines and warnings.
    logging.getLogger("matplotlib").setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", "Glyph .* missing from font")
    import matplotlib
    from matplotlib.figure import Figure

    matplotlib.rcParams["text.parse_math"] = False  # a name may have dollar signs
    matplotlib.rcParams["agg.path.chunksize"] = 10_000  # for lines of a million updates
    columns = math.ceil(math.sqrt(len(titles)))
    rows = math.ceil(len(titles) / columns)
    figure = Figure(figsize=(WIDTH * columns, HEIGHT * rows), dpi=120, layout="constrained")
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    while len(panels) > len(titles):
        panels.pop().remove()
    for axes, title in zip(panels, titles, strict=True):
        axes.set(title=title, xlabel=x_label, ylabel=y_label, axisbelow=True)
        axes.margins(x=0.02)
        axes.grid(color="0.9")
        axes.spines[["top", "right"]].set_color("0.8")
    return figure, panels


def in_thousands() -> EngFormatter:
    """Return a formatter that writes large counts along an axis as 20k and 1.5M."""
    from matplotlib.ticker import EngFormatter

    return EngFormatter(sep="")


def draw_target(axes: Axes, target: float) -> None:
    """Draw a dashed line at the --target-return."""
    axes.axhline(target, color="black", linewidth=1.2, linestyle=(0, (4, 4)))
    axes.annotate(  # at the left, where curves are seldom that high
        f"solved at {target:g}", (0.01, target), (0, -3), xycoords=axes.get_yaxis_transform(),
        textcoords="offset points", verticalalignment="top", fontsize="small", zorder=4,
    )  # fmt: skip


def add_legend(figure: Figure, title: str | None = None) -> None:
    """Put a legend below the axes."""
    legend = figure.legend(
        loc="upper center", bbox_to_anchor=(0.5, 0),  # the picture grows with it
        ncols=2, frameon=False, handlelength=3.5, title=title,
    )  # fmt: skip
    for text in legend.get_texts():
        text.set_text(textwrap.fill(text.get_text(), LABEL_WIDTH))


def save(figure: Figure, path: Path) -> None:
    """Replace the picture in a file. Raise OSError."""
    content = io.BytesIO()
    figure.savefig(content, format="png", bbox_inches="tight")
    replace(path, content.getvalue())


def main(path: Path) -> None:
    """Draw a run for each line that is read."""
    new_figure([""], "", "")  # imports Matplotlib
    while os.read(sys.stdin.fileno(), 4096):
        draw_run(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
