"""Compare several runs in one picture and in one table: python compare.py --help."""

import csv
import io
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from es.algorithm.noise import DoubleArray
from es.checkpoint import replace, writable
from es.config import ALGORITHM, Config, flag_with_value
from es.errors import UsageError, execute, in_one_line
from es.reports import PROGRESS, SETTINGS, plot
from es.settings import Parser, read_toml

if TYPE_CHECKING:  # Matplotlib is imported where something is drawn
    from matplotlib.figure import Figure

DESCRIPTION = """Compare runs: their learning curves in one picture, their results in one table.

Runs that differ only in the seed, or in limits and in what changes no result, are one group,
drawn as their mean.
"""
CLOCKS = {  # the horizontal axis of the picture: its label, its column, the column's unit
    "frames": ("frames (steps of training episodes)", "frames", 1),
    "episodes": ("training episodes", "episodes", 1),
    "minutes": ("wall-clock time (minutes)", "wall_seconds", 60),
}
LEGEND = (
    "Figures are means over seeds. final: unperturbed return, mean of the last {window} updates; "
    "best: the highest mean of {window} consecutive updates; std: standard deviation over seeds."
)


class LoadedRun(NamedTuple):
    """The directory of a run, its settings and the columns of its progress.csv, (updates,) each."""

    directory: Path
    config: Config
    progress: dict[str, DoubleArray]


class Group(NamedTuple):
    """Runs that differ in their seeds alone."""

    label: str
    env_name: str
    runs: list[LoadedRun]


def main(argv: Sequence[str]) -> int:
    """Run a command line and return the exit status."""
    return execute(lambda _: compare(**parse(argv)))


def parse(argv: Sequence[str]) -> dict[str, Any]:
    """Return the command line's arguments of `compare`. Exit for `--help`. Raise UsageError."""
    parser = Parser("compare", DESCRIPTION)
    directories = "Directories of runs, or with runs in them."
    parser.add_argument("run_dirs", nargs="+", metavar="RUN_DIR", help=directories)
    parser.add_argument("--by", choices=CLOCKS, help="The horizontal axis (default: frames).")
    files = "Write NAME.png, NAME.csv and NAME.md (default: comparison)."
    parser.add_argument("--output", metavar="NAME", help=files)
    return parser.read(argv)


def compare(run_dirs: Sequence[str], by: str = "frames", output: str = "comparison") -> int:
    """Compare runs, write files, print the table; return the exit status, or raise UsageError."""
    groups = group_runs(load_runs(run_dirs))
    window = plot.smoothing_window(
        int(np.median([run.progress["update"].size for group in groups for run in group.runs]))
    )
    output += "comparison" if output.endswith("/") else ""
    base = re.sub(r"\.(png|csv|md)$", "", output)
    picture, figures, text = (Path(f"{base}{suffix}") for suffix in (".png", ".csv", ".md"))
    rows = [summarise(group, window) for group in groups]
    table = as_markdown(rows, window)
    with writable(Path(output), "--output"):
        picture.parent.mkdir(parents=True, exist_ok=True)
        plot.save(draw(groups, by, window), picture)
        replace(figures, as_csv(rows).encode())
        replace(text, f"{table}\n![learning curves](<{picture.name}>)\n".encode())
    print(f"{table}\nWritten: {picture}, {figures}, {text}")
    return 0


def load_runs(names: Sequence[str]) -> list[LoadedRun]:
    """Load the runs in these directories or in folders of theirs, each once.

    Leave out, with a warning, a directory without runs and a run that cannot be read. Raise
    UsageError if no run is left.
    """
    runs: dict[Path, LoadedRun] = {}
    tables = {name: sorted(Path(name).rglob(PROGRESS)) for name in names}
    for name in names:
        for table in tables[name]:
            try:
                runs[table.resolve()] = load_run(table.parent)
            except (OSError, ValueError, UsageError) as error:
                reason = in_one_line(f"{table.parent}: cannot be read ({error})")
                print(f"warning: {reason}. It is left out.", file=sys.stderr)
    if not runs:
        raise UsageError(
            f"RUN_DIR {' '.join(names)}: holds no run. Give the directory of a run, such as "
            "checkpoints/CartPole-v1."
        )
    for name in names:
        if not tables[name]:
            print(f"warning: {name}: holds no run. It is left out.", file=sys.stderr)
    return list(runs.values())


def load_run(directory: Path) -> LoadedRun:
    """Load a run. Raise OSError, ValueError or UsageError if it cannot be read."""
    progress = plot.read_table(directory / PROGRESS)
    if not progress["update"].size:
        raise ValueError("it has not finished an update yet")
    settings = directory / SETTINGS
    return LoadedRun(directory, Config(**read_toml(str(settings), str(settings))), progress)


def group_runs(runs: Sequence[LoadedRun]) -> list[Group]:
    """Group the runs whose results differ by their seeds alone; keep one run of each seed.

    The order stays. A group's label lists, as flags, the settings that differ from its
    environment's other groups.
    """
    members: dict[str, list[LoadedRun]] = {}
    for run in runs:
        members.setdefault(repr(shared_settings(run.config)), []).append(run)
    configs = [each[0].config for each in members.values()]
    several = len({config.env_name for config in configs}) > 1
    groups, labels = list[Group](), list[str]()
    for config, each in zip(configs, members.values(), strict=True):
        rivals = [shared_settings(other) for other in configs if other.env_name == config.env_name]
        words = [
            flag_with_value(name, value)
            for name, value in shared_settings(config).items()
            if any(rival.get(name) != value for rival in rivals)
            and value is not None
            and value is not False
            and (value != () or name == "hidden_sizes")
        ]
        if several or not words:
            words.insert(0, config.env_name)
        label = in_one_line(" ".join(words))
        labels.append(label)
        if (number := labels.count(label)) > 1:  # groups may differ in their phases alone
            label += f" #{number}"
        groups.append(Group(label, config.env_name, one_per_seed(each)))
    return groups


def one_per_seed(runs: Sequence[LoadedRun]) -> list[LoadedRun]:
    """Return the longest run of each seed. Warn of the others."""
    longest: dict[int | None, LoadedRun] = {}
    for run in sorted(runs, key=lambda run: -run.progress["update"].size):
        kept = longest.setdefault(run.config.seed, run)
        if kept is not run:
            words = f"{run.directory}: has the seed and algorithm of {kept.directory}"
            print(f"warning: {in_one_line(words)}. It is left out.", file=sys.stderr)
    return [run for run in runs if longest[run.config.seed] is run]


def shared_settings(config: Config) -> dict[str, Any]:
    """Return the settings that the runs of a group share: those that decide their results."""
    values = {name: config.canonical(name) for name in ALGORITHM if name != "seed"}
    if config.lr_schedule != "constant":  # which depends on the number of updates
        values["max_gradient_updates"] = config.max_gradient_updates
    # The run that it branched off from.
    values["restore"] = os.path.relpath(config.restore) if config.restore else None
    return values


def draw(groups: Sequence[Group], by: str, window: int) -> "Figure":
    """Draw the smoothed unperturbed returns of groups against one of CLOCKS.

    Each environment has axes of its own, since returns of several cannot be compared.
    """
    label, column, unit = CLOCKS[by]
    names = list(dict.fromkeys(group.env_name for group in groups))
    y_label = f"unperturbed return (mean of {window} updates)"
    figure, panels = plot.new_figure(names, label, y_label)
    for axes, name in zip(panels, names, strict=True):
        if by != "minutes":
            axes.xaxis.set_major_formatter(plot.in_thousands())
        targets = set()
        for index, group in enumerate(groups):
            if group.env_name == name:
                lines = [(r.progress[column] / unit, smoothed(r, window)) for r in group.runs]
                at, mean, std = plot.mean_line(lines)
                several = len(lines) > 1
                words = f"{group.label} ({len(lines)} seeds)" if several else group.label
                runs, spread = (lines, std) if several else ((), None)
                plot.curve(axes, (at, mean), words, index=index, runs=runs, spread=spread)
                targets |= {run.config.target_return for run in group.runs}
        if len(targets) == 1 and (target := targets.pop()) is not None:
            plot.draw_target(axes, target)
    note = "mean over seeds; band: ± 1 standard deviation; pale: single runs"
    several = any(len(group.runs) > 1 for group in groups)
    plot.add_legend(figure, title=note if several else None)
    return figure


def smoothed(run: LoadedRun, window: int) -> DoubleArray:
    """Return (updates,): the running mean of the unperturbed returns."""
    return plot.running_mean(run.progress["unperturbed_return"], window)


def summarise(group: Group, window: int) -> dict[str, Any]:
    """Return the row of a group: the means of its runs' figures, and standard deviations of two."""
    means = [smoothed(run, window) for run in group.runs]

    def last(column: str) -> float:
        return float(np.mean([run.progress[column][-1] for run in group.runs]))

    row: dict[str, Any] = {
        "group": group.label,
        "seeds": len(group.runs),
        "updates": last("update"),
        "episodes": last("episodes"),
        "frames": last("frames"),
        "minutes": last("wall_seconds") / 60,
    }
    final = [mean[-1] for mean in means]
    best = [np.fmax.reduce(mean[min(window, mean.size) - 1 :]) for mean in means]
    for name, values in (("final", final), ("best", best)):
        row[name] = float(np.mean(values))
        row[f"{name}_std"] = float(np.std(values, ddof=1)) if len(values) > 1 else None
    speeds = [np.median(run.progress["steps_per_second"]) for run in group.runs]
    return row | {"steps_per_second": float(np.mean(speeds))}


def as_csv(rows: Sequence[dict[str, Any]]) -> str:
    """Return the table as CSV."""
    text = io.StringIO()
    writer = csv.DictWriter(text, rows[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def as_markdown(rows: Sequence[dict[str, Any]], window: int) -> str:
    """Return the table as Markdown, with its legend below."""

    def cell(value: str | float | None) -> str:
        if isinstance(value, str):
            return value.replace("|", "\\|")
        return "" if value is None else f"{value:,.2f}".removesuffix(".00")

    table = [[*rows[0]], ["---", *["---:"] * (len(rows[0]) - 1)]]
    table += [[cell(value) for value in row.values()] for row in rows]
    lines = ["| " + " | ".join(cells) + " |" for cells in table]
    return "\n".join([*lines, "", LEGEND.format(window=window), ""])
