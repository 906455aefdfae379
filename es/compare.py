"""Compare several runs on one picture and in one table: python compare.py --help."""

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from es.program import execute, not_installed

try:
    import tyro

    from es.config.flags import read
    from es.errors import UsageError
    from es.interrupts import Interrupted, Interrupts
    from es.runs import directory as rundir
except ModuleNotFoundError as error:
    sys.exit(not_installed(error))

By = Literal["frames", "episodes", "minutes"]
WIDE = 200  # characters: a table that is not printed on a terminal need not be folded


@dataclass(frozen=True)
class Options:
    """Compare runs: their learning curves on one picture, their results in one table.

    Runs whose settings differ in nothing but the seed are one group, drawn as their mean.
    """

    run_dirs: Annotated[
        tuple[str, ...],
        tyro.conf.Positional,
        tyro.conf.arg(
            metavar="RUN_DIR [RUN_DIR ...]",
            help="Directories of runs, or with runs in them.",
            help_behavior_hint="(required)",
        ),
    ]
    by: Annotated[By, tyro.conf.arg(help="What the returns are drawn against.")] = "frames"
    output: Annotated[
        str, tyro.conf.arg(metavar="NAME", help="Write NAME.png, NAME.csv and NAME.md.")
    ] = "comparison"


def main(argv: Sequence[str]) -> int:
    """Run a command line and return the exit status."""
    return execute(lambda interrupts: compare(parse(argv), interrupts))


def parse(argv: Sequence[str]) -> Options:
    """Return the command line's options; exit for `--help`; raise UsageError."""
    options: Options = read(Options, argv, "compare")
    if not options.run_dirs:
        raise UsageError("RUN_DIR: is missing; give the directories of runs, see --help")
    return options


def compare(options: Options, interrupts: Interrupts) -> int:
    """Compare runs, write files, print the table; return the exit status, or raise UsageError."""
    from rich.console import Console

    from es.reports import plotting
    from es.reports.comparison import table
    from es.reports.comparison.picture import draw_comparison
    from es.reports.comparison.runs import group_runs, load_runs

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
    with rundir.writable(base, "--output"):
        base.parent.mkdir(parents=True, exist_ok=True)
        for path, content in contents.items():
            rundir.replace(path, content)
    width = None if sys.stdout.isatty() else WIDE
    Console(highlight=False, width=width).print(table.for_terminal(groups))
    print("Written:", ", ".join(map(str, contents)))
    return 0
