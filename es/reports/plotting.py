"""The style of all pictures: axes, colours, lines that are quick to draw, and the file."""

from __future__ import annotations

import io
import logging
import math
import textwrap
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from es.algorithm.noise import DoubleArray
from es.checkpoint import replace
from es.rollouts.processes import variables

if TYPE_CHECKING:  # Matplotlib is imported where something is drawn
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter

BLUE, VERMILION, BLACK = "#0072b2", "#d55e00", "#000000"
# The colours of Okabe and Ito (2008), which colour-blind people can tell apart, without the yellow,
# which is too pale for a line.
COLOURS = (BLUE, VERMILION, "#009e73", "#cc79a7", "#e69f00", "#56b4e9", BLACK)
DASHES = ((6, 2), (6, 2, 1, 2), (1.5, 1.5), (6, 2, 1, 2, 1, 2), (3, 1))
STYLES = ("-", *((0, dashes) for dashes in DASHES))
THICK, THIN, PALE, BAND = 2.0, 0.8, 0.4, 0.18  # widths of lines; opacities of lines and bands
STRETCHES = 1000  # of a long line; two points of each are drawn
WIDTH, HEIGHT = 8.0, 5.0  # inches of axes with their labels
LETTERS = 9  # of a legend, per inch


def new_figure(
    titles: Sequence[str], x_label: str, y_label: str, *, height: float = HEIGHT
) -> tuple[Figure, list[Axes]]:
    """Return an empty picture, with axes for each title: up to three in a column, more in a grid.

    height: of axes with their labels, in inches.
    """
    # Matplotlib reports missing fonts, glyphs and cache folders in log lines and warnings.
    logging.getLogger("matplotlib").setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", "Glyph .* missing from font")
    # Matplotlib reads this variable, which in a notebook may name what is not installed here.
    with variables({"MPLBACKEND": "agg"}):
        import matplotlib
        from matplotlib.figure import Figure

    matplotlib.rcParams["text.parse_math"] = False  # a name may have dollar signs
    many = len(titles) > 3
    columns = math.ceil(math.sqrt(len(titles) * HEIGHT / WIDTH)) if many else 1
    rows = math.ceil(len(titles) / columns)
    scale = 0.8 if many else 1.0
    size = (scale * WIDTH * columns, scale * height * rows)
    figure = Figure(figsize=size, dpi=120, layout="constrained")
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    while len(panels) > len(titles):
        panels.pop().remove()
    for axes, title in zip(panels, titles, strict=True):
        axes.set(title=title, xlabel=x_label, ylabel=y_label, axisbelow=True)
        axes.margins(x=0.02)
        axes.grid(color="0.9")
        axes.spines[["top", "right"]].set_color("0.8")
    return figure, panels


def in_thousands() -> EngFormatter:
    """Return a formatter that writes large counts along an axis as 20k and 1.5M."""
    from matplotlib.ticker import EngFormatter

    return EngFormatter(sep="")


def draw_target(axes: Axes, target: float, *, in_legend: bool = True) -> None:
    """Draw a dashed line at the --target-return, named in the legend or else below the line."""
    line = axes.axhline(target, color=BLACK, linewidth=1.2, linestyle=(0, (4, 4)))
    words = f"solved at {target:g}"
    if in_legend:
        line.set_label(words)
        return
    axes.annotate(  # at the left, where curves are seldom that high
        words, (0.01, target), (0, -3), xycoords=axes.get_yaxis_transform(),
        textcoords="offset points", verticalalignment="top", fontsize="small", zorder=4,
        bbox={"facecolor": "white", "alpha": 0.7, "linewidth": 0, "pad": 0},
    )  # fmt: skip


def add_legend(figure: Figure, columns: int, title: str | None = None) -> None:
    """Put a legend below the picture; `png` enlarges the picture to include it.

    columns: of the legend per WIDTH of the picture, or fewer if the legend would be too wide.
    """
    width = figure.get_figwidth()
    for fewer in range(round(columns * width / WIDTH), 0, -1):
        legend = figure.legend(
            loc="upper center", bbox_to_anchor=(0.5, 0), ncols=fewer, frameon=False,
            handlelength=3.5, title=title,
        )  # fmt: skip
        for text in legend.get_texts():
            text.set_text(textwrap.fill(text.get_text(), int(LETTERS * width)))
        if legend.get_window_extent().width <= figure.bbox.width:
            break
        if fewer > 1:
            legend.remove()


def draw_line(axes: Axes, at: DoubleArray, values: DoubleArray, **style: Any) -> None:
    """Draw a line, with dots if it has fewer than three points. at, values: (points,)."""
    shown, marker = extremes(values), "." if np.isfinite(values).sum() < 3 else None
    axes.plot(at[shown], values[shown], marker=marker, **style)


def extremes(values: DoubleArray) -> npt.NDArray[np.intp]:
    """Return the sorted indices of points that are enough for a long line to look the same.

    These are the lowest and the highest value of each of STRETCHES stretches, and both ends.
    """
    every = np.arange(values.size)
    if values.size <= 2 * STRETCHES:
        return every
    low, high = (np.where(np.isnan(values), worst, values) for worst in (np.inf, -np.inf))
    found = [0, values.size - 1]
    for stretch in np.array_split(every, STRETCHES):
        found += [stretch[low[stretch].argmin()], stretch[high[stretch].argmax()]]
    return np.unique(found)


def png(figure: Figure) -> bytes:
    """Return the picture as the content of a PNG file."""
    content = io.BytesIO()
    figure.savefig(content, format="png", bbox_inches="tight")
    return content.getvalue()


def save(figure: Figure, path: Path) -> None:
    """Replace the picture on the disk; raise OSError."""
    replace(path, png(figure))
