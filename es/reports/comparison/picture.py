"""The picture of a comparison: a line per group, a band for its seeds, a pale line per run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from es.algorithm.noise import DoubleArray
from es.reports import plotting
from es.reports.comparison.runs import Group

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CLOCKS = {  # the label, the column, and what it is divided by
    "frames": ("frames (steps of training episodes)", "frames", 1),
    "episodes": ("training episodes", "episodes", 1),
    "minutes": ("wall-clock time (minutes)", "wall_seconds", 60),
}
POINTS = 500  # of a mean line
EVALUATED = "points: evaluations of single runs"
ENDS_ALIKE = 0.99  # of the longest run: the legend does not mention that a mean ends before it

Line = tuple[DoubleArray, DoubleArray]  # (points,) each: x and y


def draw_comparison(groups: Sequence[Group], by: str) -> Figure:
    """Draw the smoothed unperturbed returns of groups against one of CLOCKS.

    Each environment has axes of its own, since returns of several cannot be compared.
    """
    x_label, column, unit = CLOCKS[by]
    tasks = {group.task: group.window for group in groups}
    figure, panels = plotting.new_figure(list(tasks), x_label, "")
    complete = True
    opacity = 1.0 if len(groups) <= 4 else 0.5  # of what lies behind the mean lines
    for axes, (task, window) in zip(panels, tasks.items(), strict=True):
        axes.set_ylabel(f"unperturbed return (mean of {window} updates)")
        if by != "minutes":
            axes.xaxis.set_major_formatter(plotting.in_thousands())
        targets = set()
        for index, group in enumerate(groups):
            if group.task == task:
                runs = group.runs
                lines = [(run.progress[column] / unit, run.smoothed(window)) for run in runs]
                _draw_group(axes, lines, group.label, index, opacity)
                for run in runs:
                    at, means = run.evaluated(column)
                    if means.size:
                        _draw_evaluations(axes, at / unit, means, index)
                targets |= {run.config.target_return if run.config else None for run in runs}
                ends = [x[-1] for x, _ in lines]
                complete &= min(ends) >= ENDS_ALIKE * max(ends)
        if len(targets) == 1 and (target := targets.pop()) is not None:
            plotting.draw_target(axes, target, in_legend=len(tasks) == 1)
    several = any(len(group.runs) > 1 for group in groups)
    mean = "mean over seeds" if complete else "mean over seeds, as far as all have come"
    notes = [f"{mean}; band: ± 1 standard deviation; pale: single runs"] if several else []
    notes += [EVALUATED] if any(run.evaluations.size for g in groups for run in g.runs) else []
    plotting.add_legend(figure, columns=2, title="\n".join(notes) or None)
    return figure


def _draw_group(axes: Axes, lines: Sequence[Line], label: str, index: int, opacity: float) -> None:
    """Draw a group's runs, their mean and their spread. index: of the colour and the style."""
    colour = _colour(index)
    style = plotting.STYLES[index % len(plotting.STYLES)]
    at, mean, std = mean_line(lines)
    if len(lines) > 1:
        label += f" ({len(lines)} seeds)"
        pale = {"color": colour, "linewidth": plotting.THIN, "alpha": opacity * plotting.PALE}
        for places, line in lines:
            plotting.draw_line(axes, places, line, **pale)
        alpha = opacity * plotting.BAND
        axes.fill_between(at, mean - std, mean + std, color=colour, linewidth=0, alpha=alpha)
    if label.startswith("_"):  # it would be left out of the legend
        label = f" {label}"
    thick = {"color": colour, "linewidth": plotting.THICK, "linestyle": style, "zorder": 3}
    plotting.draw_line(axes, at, mean, label=label, **thick)


def _draw_evaluations(axes: Axes, at: DoubleArray, means: DoubleArray, index: int) -> None:
    """Draw a run's evaluations as points. index: of the group's colour."""
    shown = plotting.extremes(means)
    axes.plot(
        at[shown], means[shown], linestyle="", marker="o", markersize=4.5, color=_colour(index),
        markeredgecolor="white", markeredgewidth=0.6, zorder=4,
    )  # fmt: skip


def _colour(index: int) -> str:
    return plotting.COLOURS[index % len(plotting.COLOURS)]


def mean_line(lines: Sequence[Line]) -> tuple[DoubleArray, DoubleArray, DoubleArray]:
    """Return x, mean and standard deviation, (points,) each, of the lines where all have values.

    A line is straight between its points. If the lines have no stretch in common, there are no
    points. The deviation of a single line is 0.
    """
    first, last = max(at[0] for at, _ in lines), min(at[-1] for at, _ in lines)
    grid = np.unique(np.linspace(first, last, POINTS)) if first <= last else np.empty(0)
    values = np.array([np.interp(grid, at, line) for at, line in lines])
    return grid, values.mean(axis=0), values.std(axis=0, ddof=min(1, len(lines) - 1))
