"""What a group of runs comes to: figures for the table, and a mean line with its spread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from es.noise import DoubleArray
from es.reports.comparison.runs import Group
from es.reports.progress_csv import Progress, running_mean, smoothing_window

POINTS = 500  # of a mean line
Windows = Mapping[str | None, int]  # of each task: over how many updates returns are smoothed


class Summary(NamedTuple):
    """A group's row of the table: means over its runs.

    final: the mean unperturbed return of each run's last updates, as many as the picture of its
    task is smoothed over. best: the highest of as many updates in a row. final_std, best_std: over
    the runs, where there are several. steps_per_second: the median over a run's updates.
    """

    label: str
    seeds: int
    updates: float
    episodes: float
    frames: float
    minutes: float
    final: float
    final_std: float | None
    best: float
    best_std: float | None
    steps_per_second: float


class Spread(NamedTuple):
    """A mean line. at, mean: (points,). std: (points,), where there are several lines."""

    at: DoubleArray
    mean: DoubleArray
    std: DoubleArray | None


def windows_of(groups: Sequence[Group]) -> Windows:
    """Over how many updates the returns of each task of these groups are smoothed."""
    updates: dict[str | None, list[int]] = {}
    for group in groups:
        sizes = [run.progress["update"].size for run in group.runs]
        updates.setdefault(group.task, []).extend(sizes)
    return {task: smoothing_window(int(np.median(sizes))) for task, sizes in updates.items()}


def summarise(group: Group, window: int) -> Summary:
    """The group's row of the table."""
    tables = [run.progress for run in group.runs]

    def mean(column: str) -> float:
        return float(np.mean([table[column][-1] for table in tables]))

    finals, bests = zip(*(final_and_best(table, window) for table in tables), strict=True)
    speeds = [float(np.median(table["steps_per_second"])) for table in tables]
    return Summary(
        label=group.label,
        seeds=len(tables),
        updates=mean("update"),
        episodes=mean("episodes"),
        frames=mean("frames"),
        minutes=mean("wall_seconds") / 60,
        final=float(np.mean(finals)),
        final_std=deviation(finals),
        best=float(np.mean(bests)),
        best_std=deviation(bests),
        steps_per_second=float(np.mean(speeds)),
    )


def final_and_best(progress: Progress, window: int) -> tuple[float, float]:
    """A run's final and best return, as in `Summary`; of all updates, if these are fewer."""
    means = running_mean(progress["unperturbed_return"], window)
    whole = means[min(window, means.size) - 1 :]
    return float(means[-1]), float(np.fmax.reduce(whole))


def deviation(values: Sequence[float]) -> float | None:
    """The standard deviation of a sample, of n - 1 degrees of freedom."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else None


def spread(lines: Sequence[tuple[DoubleArray, DoubleArray]]) -> Spread:
    """The mean of lines, given by their points, over the stretch that all of them cover.

    Between its points a line is straight. Where there is no such stretch, the result is empty.
    """
    first, last = max(at[0] for at, _ in lines), min(at[-1] for at, _ in lines)
    grid = np.unique(np.linspace(first, last, POINTS)) if first <= last else np.empty(0)
    values = np.array([np.interp(grid, at, line) for at, line in lines])
    std = values.std(axis=0, ddof=1) if len(lines) > 1 else None
    return Spread(grid, values.mean(axis=0), std)
