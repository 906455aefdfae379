"""Command lines: settings as flags for tyro, and its error messages in one line."""

import contextlib
import dataclasses
import io
import re
import typing
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from es.config import FIELDS, TYPES, flag
from es.config.elsewhere import OURS
from es.errors import UsageError
from es.program import usage_name

REPEATABLE = (
    "--env-kwargs",
    "--env-wrapper",
    "--net-kwargs",
)  # given twice, they mean what both say
COLOUR = re.compile(r"\x1b\[[\d;]*m")
RULE = re.compile(r"^ +[─-]{9,} *\n", re.MULTILINE)  # between the sections of tyro's box
FLAG = re.compile(r"^ {6}(--.*?) *$", re.MULTILINE)  # a flag that tyro suggests or explains
MOST_SUGGESTED = 3
MISSING = re.compile(r"Missing value for argument '(--[\w-]+)'")
PLAIN = (  # words for what tyro and Python say
    (r"no type matching \S+ could be instantiated from \[(.*)\]", r"\1 does not fit"),
    (r"Could not find valid parse for arguments: \[(.*)\]", r"\1 does not fit"),
    (r"invalid literal for int\(\) with base 10: (.*)", r"\1 is not a whole number"),
    (r"could not convert string to float: (.*)", r"\1 is not a number"),
)


def read(kind: Any, argv: Sequence[str], tool: str, **options: Any) -> Any:
    """Return what `tyro.cli` makes of a command line; exit with status 0 for `--help`.

    kind: dataclass of the flags. tool: main, compare or sweep. options: of `tyro.cli`. Raises
    UsageError with tyro's message.
    """
    import tyro  # here, because worker processes import this module and never parse

    box = io.StringIO()
    try:
        with contextlib.redirect_stderr(box):
            return tyro.cli(kind, args=_joined(argv), prog=usage_name(tool), **options)
    except SystemExit as leaving:
        if not leaving.code:
            raise
    raise UsageError(_one_line(box.getvalue()))


def _joined(argv: Sequence[str]) -> list[str]:
    """Return a command line on which each flag of REPEATABLE stands once, with all its words."""
    plain: list[str] = []
    found: dict[str, list[str]] = {}
    words = plain
    for word in argv:
        name, equals, value = word.partition("=")
        name = name.replace("_", "-")
        if name in REPEATABLE:
            words = found.setdefault(name, [])
            words += [value] if equals else []
        else:
            words = plain if word.startswith("-") else words
            words.append(word)
    return plain + [word for name, words in found.items() for word in (name, *words)]


def argument(field: dataclasses.Field, kind: Any, value: Any) -> tuple[str, Any, Any]:
    """Return what `dataclasses.make_dataclass` takes to make a flag, whose default is `value`.

    field: declared by `option`.
    """
    import tyro

    shown = field.metadata["shown"]
    hint = f"(default: {shown})" if shown and value in (None, "", ()) else None
    arg = tyro.conf.arg(
        name=field.metadata["name"],
        help=field.metadata["help"],
        help_behavior_hint=hint,
        metavar=_metavar(kind),
    )
    # A flag that no file can set needs no counterpart to switch it off.
    markers = [] if field.metadata["saved"] else [tyro.conf.FlagCreatePairsOff]
    annotated = Annotated[(kind, arg, *markers)]
    return field.name, annotated, dataclasses.field(default=value)


def _one_line(box: str) -> str:
    """Return the message that tyro has drawn a box around, with what it suggests instead."""
    head, *sections = RULE.split(COLOUR.sub("", box).replace("│", " "))
    # The first line is the title; without box characters, a rule follows it.
    lines = [line.strip() for line in head.splitlines()[1:] or sections.pop(0).splitlines()]
    until = lines.index("") if "" in lines else None
    text = " ".join(lines[:until]).removeprefix("Error parsing ").rstrip(".")
    for pattern, plain in PLAIN:
        text = re.sub(pattern, plain, text)
    text = re.sub(r"(?<=one of \()[^)]*", _sorted_choices, text)
    rest = "".join(sections)
    flags = FLAG.findall(rest)
    if "Argument helptext:" in rest:
        return f"{text}; expected {flags[0]}"
    if text.startswith("Unrecognized"):
        words = [word.replace("_", "-") for word in re.findall(r"--[\w-]+", text)]
        flags = list(dict.fromkeys(OURS[word] for word in words if word in OURS)) or flags
    if missing := MISSING.match(text):
        return f"{missing[1]} needs a value{_wanted(missing[1])}; see --help"
    if flags:
        return f"{text}; perhaps you meant {' or '.join(flags[:MOST_SUGGESTED])}"
    return f"{text}; see --help"


def _wanted(name: str) -> str:
    """Return what the value of a flag must be, in words, as far as its check or choices tell."""
    for field_name, field in FIELDS.items():
        if flag(field_name) == name and field.metadata["check"]:
            return f": it {field.metadata['check'].words}"
        if flag(field_name) == name and (choices := _choices(TYPES[field_name])):
            return f": one of {', '.join(choices)}"
    return ""


def _choices(kind: Any) -> list[str]:
    """Return the words of a Literal, which may be optional."""
    if typing.get_origin(kind) is Literal:
        return list(typing.get_args(kind))
    return [word for each in typing.get_args(kind) for word in _choices(each)]


def _sorted_choices(listed: re.Match[str]) -> str:
    """Return a list of choices in a fixed order; tyro makes it of a set."""
    return ", ".join(sorted({*listed[0].split(", ")} - {"'None'"}))


def _metavar(kind: Any) -> str | None:
    """Return what stands for an optional value in the help text, where tyro would add None."""
    choices = typing.get_args(kind)
    if type(None) not in choices:
        return None
    words = []
    for choice in choices[:-1]:
        if typing.get_origin(choice) is Literal:
            words.append("{" + ",".join(typing.get_args(choice)) + "}")
        elif typing.get_origin(choice) is tuple:
            words.append("[WORD [WORD ...]]")
        else:
            words.append(choice.__name__.upper())
    return "|".join(words)
