"""The picture of a comparison: a line per group, a band for its seeds, a pale line per run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from es.comparison.runs import Group, common
from es.comparison.summary import spread
from es.monitor import plotting
from es.monitor.progress import Progress, running_mean
from es.noise import DoubleArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CLOCKS: dict[str, tuple[str, Callable[[Progress], DoubleArray]]] = {
    "frames": ("frames (steps of training episodes)", lambda progress: progress["frames"]),
    "episodes": ("training episodes", lambda progress: progress["episodes"]),
    "minutes": ("wall-clock time (minutes)", lambda progress: progress["wall_seconds"] / 60),
}


def compare(groups: Sequence[Group], by: str, window: int) -> Figure:
    """The unperturbed returns of groups, smoothed over `window` updates. by: one of CLOCKS.

    Each environment has axes of its own, since returns of several cannot be compared.
    """
    x_label, clock = CLOCKS[by]
    environments = list(dict.fromkeys(map(_environment, groups)))
    figure, panels = plotting.new_figure(
        [name or "runs without settings" for name in environments],
        x_label,
        f"unperturbed return (mean of {window} updates)",
    )
    opacity = 1.0 if len(groups) <= 4 else 0.5  # of what lies behind the mean lines
    for index, group in enumerate(groups):
        lines = [
            (clock(run.progress), running_mean(run.progress["unperturbed_return"], window))
            for run in group.runs
        ]
        axes = panels[environments.index(_environment(group))]
        _draw(axes, lines, group.label, index, opacity)
    for axes, name in zip(panels, environments, strict=True):
        if by != "minutes":
            plotting.count_in_thousands(axes.xaxis)
        shown = [run for group in groups if _environment(group) == name for run in group.runs]
        target = common([run.config and run.config.target_return for run in shown])
        if target is not None:
            plotting.draw_target(axes, target)
    several = any(len(group.runs) > 1 for group in groups)
    note = "mean over seeds; band: ± 1 standard deviation; pale: single runs" if several else None
    plotting.add_legend(figure, columns=2, title=note)
    return figure


def _environment(group: Group) -> str | None:
    config = group.runs[0].config
    return config.env_name if config else None


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
