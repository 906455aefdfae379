"""The table of a comparison, with a row per group: for the terminal, as CSV, as Markdown."""

import csv
import io
import re
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
# With these, a spreadsheet takes a cell for a formula (https://owasp.org/www-community/attacks/
# CSV_Injection); an apostrophe before them makes it text.
FORMULA = ("=", "+", "-", "@", "\t", "\r")
MARKUP = re.compile(r"[\\`*_\[\]<>|&~]")
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
    """Return the table as CSV; a label that a spreadsheet would compute has an apostrophe."""
    rows = [summarise(group) for group in groups]
    for row in rows:
        if row["label"].startswith(FORMULA):
            row["label"] = "'" + row["label"]
    text = io.StringIO()
    writer = csv.DictWriter(text, rows[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def as_markdown(groups: Sequence[Group], picture: str) -> str:
    """Return the table as Markdown, with a legend and a link to the picture below."""
    cells = [map(_plain, _cells(group)) for group in groups]
    rows = [HEADER, ("---", *["---:"] * (len(HEADER) - 1)), *cells]
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    legend, link = _plain(_legend(groups)), _plain(picture)
    return "\n".join([*lines, "", legend, "", f"![learning curves](<{link}>)", ""])


def _plain(text: str) -> str:
    """Return text that Markdown shows as it is."""
    return MARKUP.sub(r"\\\g<0>", text)


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
