"""The picture of a comparison: a line per group, a band for its seeds, a pale line per run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from es.comparison.runs import Group, common
from es.comparison.summary import spread
from es.monitor import plotting
from es.monitor.progress import Progress, running_mean, smoothing_window
from es.noise import DoubleArray

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CLOCKS: dict[str, tuple[str, Callable[[Progress], DoubleArray]]] = {
    "frames": ("frames (steps of training episodes)", lambda progress: progress["frames"]),
    "episodes": ("training episodes", lambda progress: progress["episodes"]),
    "minutes": ("wall-clock time (minutes)", lambda progress: progress["wall_seconds"] / 60),
}


def compare(groups: Sequence[Group], by: str) -> Figure:
    """The unperturbed returns of groups. by: one of CLOCKS."""
    runs = [run for group in groups for run in group.runs]
    window = smoothing_window(int(np.median([run.progress["update"].size for run in runs])))
    x_label, clock = CLOCKS[by]
    configs = [run.config for run in runs]
    environment = common([config and config.env_name for config in configs])
    figure, axes = plotting.new_figure(
        environment or f"{len(runs)} runs",
        x_label,
        f"unperturbed return (mean of {window} updates)",
    )
    if by != "minutes":
        plotting.count_in_thousands(axes.xaxis)
    opacity = 1.0 if len(groups) <= 4 else 0.5  # of what lies behind the mean lines
    for index, group in enumerate(groups):
        colour = plotting.COLOURS[index % len(plotting.COLOURS)]
        style = plotting.STYLES[index % len(plotting.STYLES)]
        lines = [
            (clock(run.progress), running_mean(run.progress["unperturbed_return"], window))
            for run in group.runs
        ]
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
            marker=plotting.marker(mean.mean), label=plotting.literal(group.label) + seeds,
        )  # fmt: skip
    target = common([config and config.target_return for config in configs])
    if target is not None:
        plotting.draw_target(axes, target)
    several = any(len(group.runs) > 1 for group in groups)
    note = "mean over seeds; band: ± 1 standard deviation; pale: single runs" if several else None
    plotting.add_legend(figure, columns=2, title=note)
    return figure
