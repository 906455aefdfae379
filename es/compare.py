"""Compare several runs on one picture and in one table: python compare.py --help."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from es.checkpoint import replace
from es.errors import Interrupted, Interrupts, UsageError, execute
from es.settings import Parser

WIDE = 200  # characters: a table that is not printed on a terminal need not be folded
DESCRIPTION = """Compare runs: their learning curves in one picture, their results in one table.

Runs whose settings differ in nothing but the seed are one group, drawn as their mean.
"""


class Options(NamedTuple):
    """The options of a command line; see --help."""

    run_dirs: list[str]
    by: str = "frames"
    output: str = "comparison"


def main(argv: Sequence[str]) -> int:
    """Run a command line and return the exit status."""
    return execute(lambda interrupts: compare(parse(argv), interrupts))


def parse(argv: Sequence[str]) -> Options:
    """Return the command line's options; exit for `--help`; raise UsageError."""
    parser = Parser("compare", DESCRIPTION)
    directories = "Directories of runs, or with runs in them."
    parser.add_argument("run_dirs", nargs="+", metavar="RUN_DIR", help=directories)
    axes = ("frames", "episodes", "minutes")
    parser.add_argument("--by", choices=axes, help="The horizontal axis (default: frames).")
    files = "Write NAME.png, NAME.csv and NAME.md (default: comparison)."
    parser.add_argument("--output", metavar="NAME", help=files)
    return Options(**parser.words(argv))


def compare(options: Options, interrupts: Interrupts) -> int:
    """Compare runs, write files, print the table; return the exit status, or raise UsageError."""
    from rich.console import Console

    from es.reports import plotting
    from es.reports.comparison import table
    from es.reports.comparison.picture import draw_comparison
    from es.reports.comparison.runs import group_runs, load_runs
    from es.run import writable

    def warn(text: str) -> None:
        print(f"warning: {text}", file=sys.stderr)

    groups = group_runs(load_runs(options.run_dirs, warn), warn)
    base = Path(re.sub(r"\.(png|csv|md)$", "", options.output))
    if not base.name:
        raise UsageError(f"--output {options.output}: must be the name of files")
    png, rows, text = (base.with_name(base.name + suffix) for suffix in (".png", ".csv", ".md"))
    interrupts.defer()  # until the status line is gone from the terminal
    try:
        # Shown on a terminal only: a picture of many environments takes seconds.
        with Console(stderr=True).status("Drawing the learning curves ..."), interrupts.allowed():
            drawn = plotting.png(draw_comparison(groups, options.by))
    except Interrupted as interrupted:
        return interrupted.status
    contents = {
        png: drawn,
        rows: table.as_csv(groups).encode(),
        text: table.as_markdown(groups, png.name).encode(),
    }
    with writable(base, "--output"):
        base.parent.mkdir(parents=True, exist_ok=True)
        for path, content in contents.items():
            replace(path, content)
    width = None if sys.stdout.isatty() else WIDE
    Console(highlight=False, width=width).print(table.for_terminal(groups))
    print("Written:", ", ".join(map(str, contents)))
    return 0
