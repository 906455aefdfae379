"""The table of a comparison, with a row per group: for the terminal, as CSV, as Markdown."""

import csv
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.table import Table
from rich.text import Text

from es.errors import in_one_line
from es.reports.comparison.runs import Group, LoadedRun

HEADER = ("group", "seeds", "updates", "episodes", "frames", "minutes", "final", "best", "steps/s")
LEGEND = (
    "final: mean unperturbed return of the last {last} of each run; best: the highest of "
    "{many} updates in a row; ±: standard deviation over seeds. Figures are means over seeds."
)
SPREAD = ("final", "best")  # the figures that are shown with their standard deviation


def summarise(group: Group) -> dict[str, Any]:
    """Return the group's row: the means of its runs' figures, and standard deviations of SPREAD."""
    runs = [_figures(run, group.window) for run in group.runs]
    row: dict[str, Any] = {"label": group.label, "seeds": len(runs)}
    for name in runs[0]:
        values = [figures[name] for figures in runs]
        row[name] = float(np.mean(values))
        if name in SPREAD:
            row[f"{name}_std"] = float(np.std(values, ddof=1)) if len(runs) > 1 else None
    return row


def _figures(run: LoadedRun, window: int) -> dict[str, float]:
    progress = run.progress
    means = run.smoothed(window)
    return {
        "updates": progress["update"][-1],
        "episodes": progress["episodes"][-1],
        "frames": progress["frames"][-1],
        "minutes": progress["wall_seconds"][-1] / 60,
        "final": means[-1],
        "best": np.fmax.reduce(means[min(window, means.size) - 1 :]),
        "steps_per_second": np.median(progress["steps_per_second"]),
    }


def as_csv(groups: Sequence[Group]) -> str:
    """Return the table as CSV."""
    rows = [summarise(group) for group in groups]
    text = io.StringIO()
    writer = csv.DictWriter(text, rows[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def as_markdown(groups: Sequence[Group], picture: str) -> str:
    """Return the table as Markdown, with a legend and a link to the picture below."""
    rows = [HEADER, ("---", *["---:"] * (len(HEADER) - 1)), *map(_cells, groups)]
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join([*lines, "", _legend(groups), "", f"![learning curves](<{picture}>)", ""])


def for_terminal(groups: Sequence[Group]) -> Table:
    """Return the table for rich to print."""
    table = Table(caption=Text(_legend(groups)), caption_justify="left")
    for name in HEADER:
        left = name == HEADER[0]
        table.add_column(name, justify="left" if left else "right", overflow="fold")
    for group in groups:
        table.add_row(*map(Text, _cells(group)))  # a Text: brackets are not markup
    return table


def _legend(groups: Sequence[Group]) -> str:
    windows = {group.task: group.window for group in groups}
    if len(set(windows.values())) == 1:
        many = groups[0].window
        return LEGEND.format(last=f"{many} updates", many=many)
    each = in_one_line(", ".join(f"{task}: {many}" for task, many in windows.items()))
    return LEGEND.format(last=f"few updates ({each})", many="as many")


def _cells(group: Group) -> tuple[str, ...]:
    row = summarise(group)

    def figure(name: str) -> str:
        std = row[f"{name}_std"]
        return f"{row[name]:,.2f}" + ("" if std is None else f" ± {std:,.2f}")

    return (
        row["label"],
        str(row["seeds"]),
        *(f"{row[name]:,.0f}" for name in ("updates", "episodes", "frames")),
        f"{row['minutes']:,.2f}",
        *map(figure, SPREAD),
        f"{row['steps_per_second']:,.0f}",
    )
