"""The picture of a comparison: a line per group, a band for its seeds, a pale line per run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from es.noise import DoubleArray
from es.reports import plotting
from es.reports.comparison.runs import WITHOUT_SETTINGS, Group, common
from es.reports.comparison.summary import Windows, spread
from es.reports.progress_csv import Progress, running_mean

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CLOCKS: dict[str, tuple[str, Callable[[Progress], DoubleArray]]] = {
    "frames": ("frames (steps of training episodes)", lambda progress: progress["frames"]),
    "episodes": ("training episodes", lambda progress: progress["episodes"]),
    "minutes": ("wall-clock time (minutes)", lambda progress: progress["wall_seconds"] / 60),
}
ENDS_ALIKE = 0.99  # of the longest run of a group: where a mean over seeds may end untold


def compare(groups: Sequence[Group], by: str, windows: Windows) -> Figure:
    """The unperturbed returns of groups, smoothed over so many updates of each task.

    by: one of CLOCKS.

    Each environment has axes of its own, since returns of several cannot be compared.
    """
    x_label, clock = CLOCKS[by]
    tasks = list(dict.fromkeys(group.task for group in groups))
    figure, panels = plotting.new_figure(
        [task or WITHOUT_SETTINGS for task in tasks], x_label, "unperturbed return"
    )
    complete = True
    opacity = 1.0 if len(groups) <= 4 else 0.5  # of what lies behind the mean lines
    for index, group in enumerate(groups):
        window = windows[group.task]
        lines = [
            (clock(run.progress), running_mean(run.progress["unperturbed_return"], window))
            for run in group.runs
        ]
        _draw(panels[tasks.index(group.task)], lines, group.label, index, opacity)
        ends = [at[-1] for at, _ in lines]
        complete &= min(ends) >= ENDS_ALIKE * max(ends)
    for axes, task in zip(panels, tasks, strict=True):
        axes.set_ylabel(f"unperturbed return (mean of {windows[task]} updates)")
        if by != "minutes":
            plotting.count_in_thousands(axes.xaxis)
        shown = [run for group in groups if group.task == task for run in group.runs]
        target = common([run.config and run.config.target_return for run in shown])
        if target is not None:
            plotting.draw_target(axes, target, in_legend=len(tasks) == 1)
    several = any(len(group.runs) > 1 for group in groups)
    mean = "mean over seeds" if complete else "mean over seeds, as far as all have come"
    note = f"{mean}; band: ± 1 standard deviation; pale: single runs"
    plotting.add_legend(figure, columns=2, title=note if several else None)
    return figure


def _draw(
    axes: Axes, lines: Sequence[tuple[DoubleArray, DoubleArray]], label: str, index: int,
    opacity: float,
) -> None:  # fmt: skip
    """The lines of a group's runs, their mean and their spread. index: of its colour and style."""
    colour = plotting.COLOURS[index % len(plotting.COLOURS)]
    style = plotting.STYLES[index % len(plotting.STYLES)]
    mean = spread(lines)
    if mean.std is not None:
        for at, line in lines:
            shown = plotting.extremes(line)
            axes.plot(
                at[shown], line[shown], color=colour, linewidth=plotting.THIN,
                alpha=opacity * plotting.PALE, marker=plotting.marker(line),
            )  # fmt: skip
        axes.fill_between(
            mean.at, mean.mean - mean.std, mean.mean + mean.std,
            color=colour, alpha=opacity * plotting.BAND, linewidth=0,
        )  # fmt: skip
    seeds = f" ({len(lines)} seeds)" if len(lines) > 1 else ""
    axes.plot(
        mean.at, mean.mean, color=colour, linestyle=style, linewidth=plotting.THICK, zorder=3,
        marker=plotting.marker(mean.mean), label=plotting.literal(label) + seeds,
    )  # fmt: skip
