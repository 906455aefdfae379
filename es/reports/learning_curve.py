"""learning_curve.png, drawn from progress.csv by a process of its own.

Matplotlib takes longer over a picture than a small environment over an update, and would hold the
interpreter's lock all the while. Run as a program, this module is the helper that draws.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from es.noise import DoubleArray
from es.reports import plotting
from es.reports.helper import HelperProcess, woken
from es.reports.progress_csv import Progress, read_progress, running_mean, smoothing_window
from es.runs.directory import CURVE, PROGRESS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

REDRAW_SECONDS = 10.0
NO_CURVE = "ES_NO_CURVE"  # the variable that leaves it out: a picture takes longer than a short run
LABEL_WIDTH = 0.08  # of the picture, that the axis above has for each label


class CurvePainter:
    """The master's end of the drawing process, which is started by the first picture.

    target: the run's --target-return, if any.
    """

    def __init__(self, directory: Path, title: str, target: float | None = None) -> None:
        shown = "" if target is None else repr(target)
        self._helper = HelperProcess(__name__, [str(directory.resolve()), title, shown])
        self._due = time.monotonic() + REDRAW_SECONDS
        self._drawn = True
        self._picture = directory / CURVE
        self._seen = self._changed()

    def request(self) -> None:
        """Has the picture redrawn, if the last time is some seconds ago."""
        self._drawn = False
        if time.monotonic() >= self._due:
            self._draw()
            self._due = time.monotonic() + REDRAW_SECONDS

    def close(self, patience: Callable[[], float]) -> None:
        """Has the last state drawn, and waits for it; patience: for how many seconds at most."""
        if not self._drawn:
            self._draw()
        self._helper.close(patience)

    def redrawn(self) -> bytes | None:
        """The picture, if it is another than the last time."""
        with contextlib.suppress(OSError):
            changed = self._changed()
            if changed != self._seen:
                self._seen = changed
                return self._picture.read_bytes()
        return None

    def _changed(self) -> int | None:
        return self._picture.stat().st_mtime_ns if self._picture.exists() else None

    def _draw(self) -> None:
        if not os.environ.get(NO_CURVE):
            self._helper.wake()
        self._drawn = True


def draw(directory: Path, title: str, target: float | None = None) -> None:
    """Replaces a run's learning_curve.png; raises OSError, and ValueError for a damaged table."""
    plotting.save(
        learning_curve(read_progress(directory / PROGRESS), title, target), directory / CURVE
    )


def learning_curve(progress: Progress, title: str, target: float | None = None) -> Figure:
    """The picture of a run's returns. target: its --target-return, if any."""
    figure, (axes,) = plotting.new_figure(
        [title], "episodes", "return (sum of an episode's rewards)"
    )
    plotting.count_in_thousands(axes.xaxis)
    episodes, unperturbed = progress["episodes"], progress["unperturbed_return"]
    window = smoothing_window(episodes.size)

    def line(values: DoubleArray, **style: Any) -> None:
        shown = plotting.extremes(values)
        axes.plot(episodes[shown], values[shown], marker=plotting.marker(values), **style)

    lowest, highest = progress["return_min"], progress["return_max"]
    shown = np.union1d(plotting.extremes(lowest), plotting.extremes(highest))
    axes.fill_between(
        episodes[shown], lowest[shown], highest[shown],
        color="0.5", alpha=plotting.BAND, label="population: min to max",
    )  # fmt: skip
    line(
        progress["return_mean"], color=plotting.VERMILION, linewidth=1.2,
        linestyle=plotting.STYLES[2], label="population: average",
    )  # fmt: skip
    line(
        unperturbed, color=plotting.BLUE, linewidth=plotting.THIN, alpha=plotting.PALE,
        label="unperturbed",
    )  # fmt: skip
    line(
        running_mean(unperturbed, window), color=plotting.BLUE, linewidth=plotting.THICK,
        label=f"unperturbed: mean of {window} updates",
    )  # fmt: skip
    if target is not None:
        plotting.draw_target(axes, target)
    if 1 in progress["update"][:1]:  # and not of a run that branched off from another
        axes.set_xlim(left=0)
    _count_frames(axes, episodes, progress["frames"])
    plotting.add_legend(figure, columns=3)
    return figure


def _count_frames(axes: Axes, episodes: DoubleArray, frames: DoubleArray) -> None:
    """An axis above, of the frames in so many episodes: uneven, since these differ in length."""
    from matplotlib.ticker import MaxNLocator

    # Its scale must rise everywhere, and go on to both sides.
    known = np.column_stack(([0.0, *episodes], [0.0, *frames]))
    known = known[np.append(True, (np.diff(known, axis=0) > 0).all(axis=1))]
    if len(known) < 2:
        return
    first, last = known[1] - known[0], known[-1] - known[-2]
    span = known[-1, 0] - known[0, 0]
    x, y = np.vstack(
        (known[0] - first * span / first[0], known, known[-1] + last * span / last[0])
    ).T
    there, back = partial(np.interp, xp=x, fp=y), partial(np.interp, xp=y, fp=x)
    above = axes.secondary_xaxis("top", functions=(there, back))
    left, right = axes.get_xlim()
    ticks: list[float] = []
    for tick in MaxNLocator(8, steps=[1, 2, 2.5, 5, 10]).tick_values(
        max(there(left), 0), there(right)
    ):
        at = back(tick)
        if left <= at <= right and (
            not ticks or at - back(ticks[-1]) > LABEL_WIDTH * (right - left)
        ):
            ticks.append(tick)
    above.set_ticks(ticks)
    above.set_xlabel("frames (steps of these episodes)")
    plotting.count_in_thousands(above.xaxis)


def main() -> None:
    """Draws whenever it is woken."""
    directory, title, target = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    for _ in woken():
        draw(directory, title, float(target) if target else None)
        gc.collect()  # figures refer to themselves, and a long run draws thousands


if __name__ == "__main__":
    main()
