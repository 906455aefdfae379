"""The table of a comparison: for the terminal, as CSV and as Markdown."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from es.errors import in_one_line
from es.reports.comparison.runs import WITHOUT_SETTINGS
from es.reports.comparison.summary import Summary, Windows

HEADER = ("group", "seeds", "updates", "episodes", "frames", "minutes", "final", "best", "steps/s")
LEGEND = (
    "final: mean unperturbed return of the last {last} of each run; best: the highest of "
    "{many} updates in a row; ±: standard deviation over seeds. Figures are means over seeds."
)


def as_csv(summaries: Sequence[Summary]) -> str:
    """One row per group, for programs."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(Summary._fields)
    writer.writerows(summaries)
    return text.getvalue()


def as_markdown(summaries: Sequence[Summary], windows: Windows, picture: str) -> str:
    """One row per group, with a line that says what the columns are, and the picture below."""
    rows = [HEADER, ("---", *["---:"] * (len(HEADER) - 1)), *map(_cells, summaries)]
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join([*lines, "", _legend(windows), "", f"![learning curves](<{picture}>)", ""])


def for_terminal(summaries: Sequence[Summary], windows: Windows) -> Table:
    """One row per group."""
    table = Table(caption=Text(_legend(windows)), caption_justify="left")
    for name in HEADER:
        left = name == HEADER[0]
        table.add_column(name, justify="left" if left else "right", overflow="fold")
    for summary in summaries:
        table.add_row(*map(Text, _cells(summary)))  # in which brackets are no markup
    return table


def _legend(windows: Windows) -> str:
    """What the columns are."""
    if len(set(windows.values())) == 1:
        (many,) = set(windows.values())
        return LEGEND.format(last=f"{many} updates", many=many)
    each = ", ".join(
        in_one_line(f"{task or WITHOUT_SETTINGS}: {many}") for task, many in windows.items()
    )
    return LEGEND.format(last=f"few updates ({each})", many="as many")


def _cells(row: Summary) -> tuple[str, ...]:
    return (
        row.label,
        str(row.seeds),
        *(f"{value:,.0f}" for value in (row.updates, row.episodes, row.frames)),
        f"{row.minutes:,.2f}",
        _with_deviation(row.final, row.final_std),
        _with_deviation(row.best, row.best_std),
        f"{row.steps_per_second:,.0f}",
    )


def _with_deviation(mean: float, std: float | None) -> str:
    return f"{mean:,.2f}" + ("" if std is None else f" ± {std:,.2f}")
