"""The style of all pictures: axes, colours, lines that stay quick to draw, and the file."""

from __future__ import annotations

import io
import logging
import math
import textwrap
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from es.noise import DoubleArray
from es.runs.directory import replace

if TYPE_CHECKING:  # Matplotlib is imported where something is drawn
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend

# The colours of Okabe and Ito (2008), which colour-blind people can tell apart, without the yellow,
# which is too pale for a line.
BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, BLACK = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000",
)  # fmt: skip
COLOURS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, BLACK)
STYLES = (
    "-",
    (0, (6, 2)),
    (0, (6, 2, 1, 2)),
    (0, (1.5, 1.5)),
    (0, (6, 2, 1, 2, 1, 2)),
    (0, (3, 1)),
)
THICK, THIN, PALE, BAND = 2.0, 0.8, 0.4, 0.18  # widths of lines; opacities of lines and bands
STRETCHES = 1000  # of a line, of each of which two points are drawn
WIDTH, HEIGHT = 8.0, 5.0  # inches of axes with their labels
LONGEST = 3  # axes in a column, beyond which a picture would be too long: it becomes a grid
SHRUNK = 0.8  # sides of axes in a grid


def new_figure(
    titles: Sequence[str], x_label: str, y_label: str, *, height: float = HEIGHT
) -> tuple[Figure, list[Axes]]:
    """An empty picture, with axes for each title: below each other, or many in a grid.

    height: of axes with their labels, in inches.
    """
    # It tells, in log lines, of fonts and of folders for caches that it misses.
    logging.getLogger("matplotlib").setLevel(logging.CRITICAL)
    from matplotlib.figure import Figure

    columns, rows = _grid(len(titles))
    scale = SHRUNK if columns > 1 else 1.0
    size = (scale * WIDTH * columns, scale * height * rows)
    figure = Figure(figsize=size, dpi=120, layout="constrained")
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    while len(panels) > len(titles):
        panels.pop().remove()
    for axes, title in zip(panels, titles, strict=True):
        axes.set_title(literal(title))
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
        axes.margins(x=0.02)
        axes.grid(color="0.9")
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_color("0.8")
    return figure, panels


def _grid(panels: int) -> tuple[int, int]:
    """Columns and rows of so many: the picture is about square, unless there are few."""
    columns = 1 if panels <= LONGEST else math.ceil(math.sqrt(panels * HEIGHT / WIDTH))
    return columns, math.ceil(panels / columns)


def count_in_thousands(axis: Axis) -> None:
    """Has an axis spell large counts as 20k and 1.5M."""
    from matplotlib.ticker import EngFormatter

    axis.set_major_formatter(EngFormatter(sep=""))


def draw_target(axes: Axes, target: float, *, in_legend: bool = True) -> None:
    """A dashed line at the --target-return, named in the legend or else beside it."""
    line = axes.axhline(target, color=BLACK, linewidth=1.2, linestyle=(0, (4, 4)))
    words = f"solved at {target:g}"
    if in_legend:
        line.set_label(words)
        return
    axes.annotate(  # at the left, where curves are seldom as far up
        words, (0.01, target), (0, -3), xycoords=axes.get_yaxis_transform(),
        textcoords="offset points", verticalalignment="top", fontsize="small", zorder=4,
        bbox={"facecolor": "white", "alpha": 0.7, "linewidth": 0, "pad": 0},
    )  # fmt: skip


def add_legend(figure: Figure, columns: int, title: str | None = None) -> None:
    """A legend below; the picture grows where it is long.

    columns: of the legend, for each WIDTH of the picture; fewer where they are too wide for it, and
    entries that are wider than the picture are wrapped.
    """
    entries = sum(len(axes.get_legend_handles_labels()[1]) for axes in figure.axes)
    for fewer in range(round(columns * figure.get_figwidth() / WIDTH), 0, -1):
        legend = figure.legend(
            loc="outside lower center", ncols=fewer, frameon=False, handlelength=3.5, title=title
        )
        if fewer == 1 or _share(legend, figure) <= 1:
            entries += _wrap(legend, figure)
            more = 0.2 * max(0, math.ceil(entries / fewer) - 2)
            figure.set_figheight(figure.get_figheight() + more)
            return
        legend.remove()


def _share(legend: Legend, figure: Figure) -> float:
    """The legend's width as a share of the picture's."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of letters that the font does not have
        return legend.get_window_extent().width / figure.bbox.width


def _wrap(legend: Legend, figure: Figure) -> int:
    """Breaks entries until the legend fits; returns by how many lines it has grown."""
    texts = legend.get_texts()
    whole = [text.get_text().replace(r"\$", "$") for text in texts]  # as before `literal`
    width = max(map(len, whole), default=0)
    while (share := _share(legend, figure)) > 1 and width > 1:
        width = min(width - 1, int(width / share) + 1)
        for text, words in zip(texts, whole, strict=True):
            text.set_text(literal(textwrap.fill(words, width, break_on_hyphens=False)))
    return sum(text.get_text().count("\n") for text in texts)


def marker(values: DoubleArray) -> str | None:
    """What shows a line that has too few points to be one."""
    return "." if np.isfinite(values).sum() < 3 else None


def extremes(values: DoubleArray) -> npt.NDArray[np.intp]:
    """The indices, in order, of what must be drawn of a long line for it to look as if all was.

    These are the lowest and the highest value of each of STRETCHES, and both ends.
    """
    size = math.ceil(values.size / STRETCHES)
    if size < 3:
        return np.arange(values.size)
    starts = np.arange(0, values.size, size)
    padded = np.full((starts.size, size), np.nan)
    padded.flat[: values.size] = values
    unknown = np.isnan(padded)
    lowest = starts + np.where(unknown, np.inf, padded).argmin(axis=1)
    highest = starts + np.where(unknown, -np.inf, padded).argmax(axis=1)
    return np.unique(np.concatenate((lowest, highest, [0, values.size - 1])))


def literal(text: str) -> str:
    """A text from outside that is shown as it is.

    For Matplotlib, dollars enclose formulas, and what begins with _ has no place in a legend.
    """
    return (" " if text.startswith("_") else "") + text.replace("$", r"\$")


def png(figure: Figure) -> bytes:
    """The picture as a file's content."""
    content = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of letters that the font does not have
        figure.savefig(content, format="png")
    return content.getvalue()


def save(figure: Figure, path: Path) -> None:
    """Replaces the picture on disk; raises OSError."""
    replace(path, png(figure))
