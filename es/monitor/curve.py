"""learning_curve.png, drawn from progress.csv by a process of its own.

Matplotlib takes longer over a picture than a small environment over an update, and would hold the
interpreter's lock all the while. Run as a program, this module draws whenever a line arrives on
standard input, and ends with it.
"""

from __future__ import annotations

import contextlib
import gc
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from es.rundir import CURVE, PROGRESS

REDRAW_SECONDS = 10.0
WIDTH, HEIGHT, DPI = 960, 600, 120  # pixels, and how many of them are an inch
LINES = {
    "return_mean": ("average", "#0072b2", "-"),
    "return_max": ("max", "#009e73", ":"),
    "return_min": ("min", "#d55e00", ":"),
    "unperturbed_return": ("unperturbed", "#000000", "-"),
}


class CurvePainter:
    """The master's end of the drawing process, which is started by the first picture."""

    def __init__(self, directory: Path, title: str) -> None:
        self._arguments = [str(directory.resolve()), title]
        self._process: subprocess.Popen[bytes] | None = None
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
        if self._process is None:
            return
        self._hang_up(self._process)
        start = time.monotonic()
        while self._process.poll() is None and time.monotonic() - start < patience():
            time.sleep(0.01)
        self._process.kill()
        self._process.wait()

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
        if self._process is not None and self._process.poll() is not None:  # it was killed
            self._hang_up(self._process)
            self._process = None
        with contextlib.suppress(OSError):  # a missing picture is no reason to end a run
            if self._process is None:
                self._process = self._start()
            assert self._process.stdin is not None
            self._process.stdin.write(b"\n")
            self._process.stdin.flush()
        self._drawn = True

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", __name__, *self._arguments],
            cwd=Path(__file__).resolve().parent.parent.parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # the terminal's Ctrl-C must not interrupt the last picture
        )

    @staticmethod
    def _hang_up(process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        with contextlib.suppress(OSError):
            process.stdin.close()


def draw(directory: Path, title: str) -> None:
    """Draws a run's returns against its episodes."""
    import matplotlib
    import numpy as np

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    with (directory / PROGRESS).open() as file:
        columns = file.readline().strip().split(",")
        used = [columns.index(column) for column in ("episodes", *LINES)]
        episodes, *lines = np.loadtxt(file, delimiter=",", usecols=used, ndmin=2).T
    figure = Figure(figsize=(WIDTH / DPI, HEIGHT / DPI), dpi=DPI, layout="constrained")
    axes = figure.add_subplot()
    marker = "." if len(episodes) < 3 else None  # a line needs two points to be seen
    for values, (label, colour, style) in zip(lines, LINES.values(), strict=True):
        axes.plot(episodes, values, label=label, color=colour, linestyle=style, marker=marker)
    axes.set_title(title)
    axes.set_xlabel("episodes")
    axes.set_ylabel("return")
    axes.grid(alpha=0.3)
    axes.legend()
    temporary = directory / f".{CURVE}"
    figure.savefig(temporary, format="png")
    temporary.replace(directory / CURVE)


def main() -> None:
    """Draws for every line that arrives."""
    directory, title = Path(sys.argv[1]), sys.argv[2]
    for _ in sys.stdin:
        draw(directory, title)
        gc.collect()  # figures refer to themselves, and a long run draws thousands


if __name__ == "__main__":
    main()
