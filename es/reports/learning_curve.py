"""Draw learning_curve.png from progress.csv, each time in a process of its own.

Matplotlib takes longer over a picture than a small environment over an update, and would hold the
interpreter's lock meanwhile. `python -m es.reports.learning_curve RUN_DIR TITLE TARGET` draws once.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from es.algorithm.noise import DoubleArray
from es.reports import NO_CURVE, plotting
from es.reports.one_shot import LOWEST, USUAL, Idle, OneShot, start
from es.reports.tables import Table, read_progress, running_mean, smoothing_window
from es.run import CURVE, PROGRESS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

REDRAW_SECONDS = 10.0


class CurvePainter:
    """Redraw a run's learning curve from time to time. target: its --target-return, if any."""

    def __init__(self, directory: Path, title: str, target: float | None = None) -> None:
        shown = "" if target is None else repr(target)
        self._arguments = (str(directory.resolve()), title, shown)
        self._process: OneShot | None = None
        self._failure, self._hopeless = "", False
        self._due = time.monotonic() + REDRAW_SECONDS
        self._drawn = True
        self._picture, self._seen = directory / CURVE, 0
        self.redrawn()  # a picture of an earlier process is not a new one

    def request(self) -> None:
        """Redraw the picture, unless it was drawn a few seconds ago."""
        self._drawn = False
        if time.monotonic() >= self._due and not self._drawing():
            self._draw()
            self._due = time.monotonic() + REDRAW_SECONDS

    def close(self, enough: Callable[[float], bool]) -> str:
        """Draw the last state; return why that has failed, or else "".

        enough: told for how many seconds the process has done nothing; returns whether to wait no
        longer.
        """
        if not self._drawn:
            self._draw(USUAL)
        idle = Idle()
        while self._drawing():
            assert self._process is not None
            if not self._process.hasten():
                self._draw(USUAL)
            if enough(idle.seconds(self._process)):
                self._stop()
                return "it was not drawn in time"
            time.sleep(0.01)
        return self._failure

    def redrawn(self) -> bytes | None:
        """Return the picture if it has changed since the last call."""
        with contextlib.suppress(OSError):
            changed = self._picture.stat().st_mtime_ns
            if changed != self._seen:
                self._seen = changed
                return self._picture.read_bytes()
        return None

    def _drawing(self) -> bool:
        """Return whether a process draws now; note why the last one has failed."""
        if self._process is None:
            return False
        if self._process.poll() is None:
            return True
        failure = self._process.failure()
        self._hopeless = failure != "" and failure == self._failure
        self._failure = failure
        self._stop()
        return False

    def _draw(self, priority: str = LOWEST) -> None:
        self._stop()
        if not os.environ.get(NO_CURVE) and not self._hopeless:
            try:
                self._process = start(__name__, *self._arguments, priority=priority)
            except OSError as error:  # a missing picture is no reason to end a run
                self._failure = str(error)
        self._drawn = True

    def _stop(self) -> None:
        if self._process:
            self._process.close()
            self._process = None


def draw(directory: Path, title: str, target: float | None = None) -> None:
    """Replace a run's learning_curve.png; raise OSError, or ValueError for a damaged table."""
    figure = learning_curve(read_progress(directory / PROGRESS), title, target)
    plotting.save(figure, directory / CURVE)


def learning_curve(progress: Table, title: str, target: float | None = None) -> Figure:
    """Draw a run's returns. target: its --target-return, if any."""
    figure, (axes,) = plotting.new_figure(
        [title], "episodes", "return (sum of an episode's rewards)"
    )
    axes.xaxis.set_major_formatter(plotting.in_thousands())
    episodes, unperturbed = progress["episodes"], progress["unperturbed_return"]
    lowest, highest = progress["return_min"], progress["return_max"]
    shown = np.union1d(plotting.extremes(lowest), plotting.extremes(highest))
    label, opacity = "population: min to max", plotting.BAND
    axes.fill_between(
        episodes[shown], lowest[shown], highest[shown], color="0.5", alpha=opacity, label=label
    )
    population = {"color": plotting.VERMILION, "linestyle": plotting.STYLES[2], "linewidth": 1.2}
    mean = progress["return_mean"]
    plotting.draw_line(axes, episodes, mean, label="population: average", **population)
    pale = {"color": plotting.BLUE, "linewidth": plotting.THIN, "alpha": plotting.PALE}
    plotting.draw_line(axes, episodes, unperturbed, label="unperturbed", **pale)
    window = smoothing_window(progress.size)
    smooth, label = running_mean(unperturbed, window), f"unperturbed: mean of {window} updates"
    thick = {"color": plotting.BLUE, "linewidth": plotting.THICK}
    plotting.draw_line(axes, episodes, smooth, label=label, **thick)
    if target is not None:
        plotting.draw_target(axes, target)
    if 1 in progress["update"][:1]:  # not the start of a run that branched off from another
        axes.set_xlim(left=0)
    if progress.size:
        _count_frames(axes, np.append(0, episodes), np.append(0, progress["frames"]))
    plotting.add_legend(figure, columns=3)
    return figure


def _count_frames(axes: Axes, episodes: DoubleArray, frames: DoubleArray) -> None:
    """Label the episodes along an axis above with the frames that were played until then."""
    spell = plotting.in_thousands()

    def frames_at(episode: float, _: float) -> str:
        if not 0 <= episode <= episodes[-1]:
            return ""
        return spell(float(f"{np.interp(episode, episodes, frames):.3g}"))

    above = axes.secondary_xaxis("top")
    above.set_xlabel("frames (steps of these episodes)")
    above.xaxis.set_major_formatter(frames_at)


if __name__ == "__main__":
    draw(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]) if sys.argv[3] else None)
