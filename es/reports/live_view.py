"""The live view: where a run stands, in a few lines."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from rich.cells import cell_len
from rich.text import Text

from es.errors import in_one_line
from es.reports.record import Record
from es.reports.sparkline import BLOCKS, blocks
from es.runs.checkpoint import Counters

LONGEST_BAR, SHORTEST_BAR, LONGEST_CURVE = 40, 5, 60
BAR, REST, BETWEEN = "━", "─", " │ "
ASCII = str.maketrans(
    dict(zip(BLOCKS, " ...:::||", strict=True)) | {BAR: "=", REST: "-", BETWEEN[1]: "|"}
)


class Course(NamedTuple):
    """What a run is, and where it goes.

    caps: the most it may have, by "update", "frames", "minutes". began: as this process found it.
    """

    title: str
    run_dir: Path
    perturbations: int
    target: float | None
    caps: Mapping[str, float]
    began: Counters


@dataclass
class Batch:
    """Episodes that are being played."""

    name: str
    episodes: int
    done: int = 0


class State(NamedTuple):
    """What there is to show. record: the last update's of this process, if it has done one.

    curve: unperturbed returns of the whole run, or means of neighbours. first: the first of all.
    """

    course: Course
    record: Record | None = None
    best: float | None = None
    curve: tuple[float, ...] = ()
    first: float | None = None
    batch: Batch | None = None


def view(
    state: State, seconds: float, pool: str, *, width: int, height: int, ascii_only: bool = False
) -> Text:
    """The state of a run after so many seconds, within `width` columns and `height` lines.

    pool: who plays, in words. Where the lines are too few, the curve goes first, then the title.
    """
    course, record = state.course, state.record
    head = _flow([(course.title, "bold"), in_one_line(str(course.run_dir)), pool], width)
    body: list[Text] = []
    if course.target is not None:
        body.append(_goal(state, course.target, width))
    cap_bar, left = _cap(state, seconds, width)
    body += cap_bar
    body += _flow(_pace(state, seconds, left), width)
    if record:
        sign = "+-" if ascii_only else "±"
        body += _flow(_figures(record, sign, course.perturbations, state.best), width)
    curve = _curve(state.curve, width)
    lines = [*head, *body, *curve]
    if len(lines) > height:
        lines = [*head, *body] if len(head) + len(body) <= height else body[:height]
    for line in lines:
        if ascii_only:
            line.plain = _in_ascii(line.plain)
        line.truncate(width, overflow="crop")
    return Text("\n", no_wrap=True, overflow="crop", end="").join(lines)


def _goal(state: State, target: float, width: int) -> Text:
    """The unperturbed return on its way from the first to the target."""
    if state.record is None and not state.curve:
        return _bar("goal", 0.0, _number(target), width)
    value = state.record.unperturbed_return if state.record else state.curve[-1]
    first, share = state.first, 0.0
    if value >= target:
        share = 1.0
    elif first is not None and first < value:
        share = (value - first) / (target - first)
    return _bar("goal", share, f"{_number(value)} of {_number(target)}", width)


def _cap(state: State, seconds: float, width: int) -> tuple[list[Text], float | None]:
    """The bar to the cap that will be reached first, and the seconds until then, if known.

    As fast as this process has been so far.
    """
    began, last = state.course.began, state.record or state.course.began
    spent, since = last.wall_seconds - began.wall_seconds, seconds - last.wall_seconds
    found: list[tuple[float, float, str]] = []
    for name, most in state.course.caps.items():
        if name == "minutes":
            share, left = seconds / 60 / most, 60 * most - seconds
            words = f"{seconds / 60:.1f} of {most:g} minutes"
        else:
            now, done = getattr(last, name), getattr(last, name) - getattr(began, name)
            share, left = now / most, math.inf
            if done:
                left = (most - now) * spent / done - since
            words = f"{now:,} of {most:,} {name.removesuffix('s')}s"
        found.append((max(left, 0.0), min(share, 1.0), words))
    if not found:
        return [], None
    by_time = state.record is not None  # before the first update, nobody knows how long one takes
    left, share, words = min(found) if by_time else max(found, key=lambda cap: cap[1])
    return [_bar("cap", share, words, width)], left if math.isfinite(left) else None


def _pace(state: State, seconds: float, left: float | None) -> list[str]:
    batch, record = state.batch, state.record
    items = [f"{batch.name}: {batch.done} of {batch.episodes} episodes"] if batch else []
    items += [f"{record.steps_per_second:,.0f} steps/s"] if record else []
    items.append(f"elapsed {_duration(seconds)}")
    return items if left is None else [*items, f"left {_duration(left)}"]


def _figures(record: Record, sign: str, perturbations: int, best: float | None) -> list[str]:
    items = [
        f"return {_number(record.return_mean)} {sign} {_number(record.return_std)}",
        f"max {_number(record.return_max)}",
        f"min {_number(record.return_min)}",
        f"unperturbed {_number(record.unperturbed_return)}",
        f"rank {record.unperturbed_rank} of {perturbations + 1}",
    ]
    items += [] if best is None else [f"best {_number(best)}"]
    return [*items, f"{record.non_finite} not finite"] if record.non_finite else items


def _bar(label: str, share: float, words: str, width: int) -> Text:
    words = f" {math.floor(100 * share):3}% {words}"
    room = min(width - 5 - cell_len(words), LONGEST_BAR)
    if room < SHORTEST_BAR:
        return Text(label + words)
    filled = math.floor(share * room)
    bar = Text(f"{label:5}").append(BAR * filled, "green").append(REST * (room - filled), "dim")
    return bar.append(words)


def _curve(values: Sequence[float], width: int) -> list[Text]:
    """The blocks, with the highest and the lowest value beside them."""
    if not values:
        return []
    labels = [_number(max(values)), _number(min(values))]
    columns = min(width - 1 - max(map(len, labels)), LONGEST_CURVE)
    if columns < SHORTEST_BAR:
        return []
    return [
        Text(line, "cyan").append(f" {label}", "default")
        for line, label in zip(blocks(values, columns, len(labels)), labels, strict=True)
    ]


def _flow(items: Sequence[str | tuple[str, str]], width: int) -> list[Text]:
    """The items side by side, on as many lines as that takes."""
    lines: list[Text] = []
    for item in items:
        text = Text.assemble(item)
        if lines and lines[-1].cell_len + len(BETWEEN) + text.cell_len <= width:
            lines[-1].append(BETWEEN, "dim").append_text(text)
        else:
            lines.append(text)
    return lines


def _in_ascii(text: str) -> str:
    """The same, as long, with the characters that every terminal has."""
    return text.translate(ASCII).encode("ascii", "replace").decode()


def _number(value: float) -> str:
    return f"{value:.2f}" if abs(value) < 1e6 else f"{value:.4g}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"
