"""Draw learning_curve.png from progress.csv, each time in a process of its own.

Matplotlib takes longer over a picture than a small environment over an update, and would hold the
interpreter's lock all the while. `python -m es.reports.learning_curve RUN_DIR TITLE TARGET` draws
once.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from es.noise import DoubleArray
from es.reports import plotting
from es.reports.helper import start
from es.reports.progress_csv import Progress, read_progress, running_mean, smoothing_window
from es.runs.directory import CURVE, PROGRESS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

REDRAW_SECONDS = 10.0
NO_CURVE = "ES_NO_CURVE"  # the variable that leaves it out: a picture takes longer than a short run


class CurvePainter:
    """Redraw a run's learning curve from time to time. target: its --target-return, if any."""

    def __init__(self, directory: Path, title: str, target: float | None = None) -> None:
        shown = "" if target is None else repr(target)
        self._arguments = (str(directory.resolve()), title, shown)
        self._process: subprocess.Popen[bytes] | None = None
        self._due = time.monotonic() + REDRAW_SECONDS
        self._drawn = True
        self._picture = directory / CURVE
        self._seen = self._changed()

    def request(self) -> None:
        """Have the picture redrawn, if the last time is some seconds ago."""
        self._drawn = False
        if time.monotonic() >= self._due and not self._drawing():
            self._draw()
            self._due = time.monotonic() + REDRAW_SECONDS

    def close(self, patience: Callable[[], float]) -> None:
        """Have the last state drawn, and wait for it, for at most `patience()` seconds."""
        if not self._drawn:
            self._draw()
        began = time.monotonic()
        while self._drawing() and time.monotonic() - began < patience():
            time.sleep(0.01)
        self._stop()

    def redrawn(self) -> bytes | None:
        """Return the picture, if it is another than the last time."""
        with contextlib.suppress(OSError):
            changed = self._changed()
            if changed != self._seen:
                self._seen = changed
                return self._picture.read_bytes()
        return None

    def _changed(self) -> int | None:
        return self._picture.stat().st_mtime_ns if self._picture.exists() else None

    def _drawing(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _draw(self) -> None:
        self._stop()
        if not os.environ.get(NO_CURVE):
            with contextlib.suppress(OSError):  # a missing picture is no reason to end a run
                self._process = start(__name__, *self._arguments)
        self._drawn = True

    def _stop(self) -> None:
        if self._process:
            self._process.kill()
            self._process.communicate()  # closes the pipe, too


def draw(directory: Path, title: str, target: float | None = None) -> None:
    """Replace a run's learning_curve.png; raise OSError, or ValueError for a damaged table."""
    figure = learning_curve(read_progress(directory / PROGRESS), title, target)
    plotting.save(figure, directory / CURVE)


def learning_curve(progress: Progress, title: str, target: float | None = None) -> Figure:
    """Draw a run's returns. target: its --target-return, if any."""
    figure, (axes,) = plotting.new_figure(
        [title], "episodes", "return (sum of an episode's rewards)"
    )
    axes.xaxis.set_major_formatter(plotting.in_thousands())
    episodes, unperturbed = progress["episodes"], progress["unperturbed_return"]
    window = smoothing_window(progress.size)

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
    if progress.size:
        _count_frames(axes, episodes, progress["frames"])
    plotting.add_legend(figure, columns=3)
    return figure


def _count_frames(axes: Axes, episodes: DoubleArray, frames: DoubleArray) -> None:
    """Label the episodes along an axis above with the frames that were played until then."""
    known_episodes, known_frames = np.append(0, episodes), np.append(0, frames)
    spell = plotting.in_thousands()

    def frames_at(episode: float, _: float) -> str:
        if not 0 <= episode <= episodes[-1]:
            return ""
        return spell(float(f"{np.interp(episode, known_episodes, known_frames):.3g}"))

    above = axes.secondary_xaxis("top")
    above.set_xlabel("frames (steps of these episodes)")
    above.xaxis.set_major_formatter(frames_at)


if __name__ == "__main__":
    draw(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]) if sys.argv[3] else None)
