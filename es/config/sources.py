"""Where settings come from: defaults, then a restored checkpoint's, a TOML file's, the flags."""

from __future__ import annotations

import dataclasses
import json
import tomllib
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from es.config import FIELDS, TYPES, Config, flag
from es.config.validation import validate
from es.errors import UsageError

MAX_WHOLE_FLOAT = 10**300


def parse(argv: Sequence[str], settings: Mapping[str, Any] | None = None) -> Config:
    """The command line's `Config`, with `settings` (field name -> value) as the defaults.

    Exits with status 0 for `--help`, 2 for a syntax error. The values are not yet validated.
    """
    import tyro  # here, because worker processes import this module and never parse

    base = dataclasses.replace(Config(), **(settings or {}))
    groups: dict[str, list[tuple[str, Any, Any]]] = {}
    for field in FIELDS.values():
        shown = field.metadata["shown"]
        value = getattr(base, field.name)
        hint = f"(default: {shown})" if shown and value in (None, "", ()) else None
        arg = tyro.conf.arg(
            name=field.metadata["name"], help=field.metadata["help"], help_behavior_hint=hint
        )
        # A flag that no file can set needs no counterpart to switch it off.
        markers = [] if field.metadata["saved"] else [tyro.conf.FlagCreatePairsOff]
        annotated = Annotated[(TYPES[field.name], arg, *markers)]  # type: ignore
        entry = (field.name, annotated, dataclasses.field(default=value))
        groups.setdefault(field.metadata["group"], []).append(entry)
    # tyro shows a nested dataclass as a group of the help text.
    nested: list[tuple[str, Any, Any]] = []
    for group, fields in groups.items():
        options: Any = dataclasses.make_dataclass(group.capitalize(), fields, frozen=True)
        nested.append((group, options, dataclasses.field(default_factory=options)))
    parsed: Any = tyro.cli(
        dataclasses.make_dataclass("Flags", nested, frozen=True),
        args=list(argv),
        prog="main.py",
        description=Config.__doc__,
        config=(tyro.conf.OmitArgPrefixes,),
    )
    values: dict[str, Any] = {}
    for group in groups:
        values |= vars(getattr(parsed, group))
    return Config(**values)


def from_mapping(settings: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Checked settings by field name, from keys spelled as flags or as fields.

    Raises UsageError, naming `source`, for an unknown key or a value of the wrong type.
    """
    names = {flag(name)[2:]: name for name in FIELDS} | {name: name for name in FIELDS}
    checked: dict[str, Any] = {}
    for key, value in settings.items():
        if key not in names:
            raise UsageError(f"{source}: unknown setting {key!r} (see --help)")
        name = names[key]
        kinds = typing.get_args(TYPES[name]) or (TYPES[name],)
        if float in kinds and type(value) is int and abs(value) < MAX_WHOLE_FLOAT:
            checked[name] = float(value)
        elif _fits(value, TYPES[name]):
            checked[name] = tuple(value) if isinstance(value, list) else value
        else:
            raise UsageError(f"{source}: {key} = {value!r} is not {_words(TYPES[name])}")
    return checked


def read_toml(path: str) -> dict[str, Any]:
    """A settings file's values by field name; raises UsageError for any fault in it."""
    try:
        with Path(path).open("rb") as file:
            settings = tomllib.load(file)
    except OSError as error:
        raise UsageError(f"--config {path}: cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:  # bad syntax, bytes or numbers; too deep
        raise UsageError(f"--config {path}: is not valid TOML ({error})") from error
    checked = from_mapping(settings, f"--config {path}")
    for name in checked:
        if not FIELDS[name].metadata["saved"]:
            raise UsageError(f"--config {path}: {flag(name)} belongs on the command line")
    return checked


def write_toml(settings: Mapping[str, Any]) -> str:
    """The text of a settings file that `read_toml` reads back to `settings`."""
    # A JSON string, number or truth value is also one of TOML, but for one character.
    values = {
        name: json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        for name, value in settings.items()
    }
    lines = [f"{flag(name)[2:]} = {value}" for name, value in values.items()]
    title = "# The settings of this run: repeat it with --config and this file."
    return "\n".join([title, *lines, ""])


def inherited(settings: Mapping[str, Any], source: str) -> dict[str, Any]:
    """A checkpoint's settings by field name, checked; UsageError, naming `source`, for bad ones."""
    own = from_mapping(settings, source)
    own = {name: value for name, value in own.items() if FIELDS[name].metadata["saved"]}
    try:
        validate(Config(**own))
    except UsageError as error:
        raise UsageError(f"{source}: is damaged ({error})") from error
    return own


def differences(
    config: Config, settings: Mapping[str, Any], names: Sequence[str] = ()
) -> list[str]:
    """Sentences for the settings of the algorithm (or `names`) in which `config` differs."""
    if not names:
        names = [name for name, field in FIELDS.items() if field.metadata["algorithm"]]
        if config.lr_schedule != "constant":
            names.append("max_gradient_updates")  # which the schedule is laid out for
    return [
        f"{flag(name)} {getattr(config, name)} differs from the checkpoint's {settings[name]}"
        for name in names
        if name in settings and getattr(config, name) != settings[name]
    ]


def _fits(value: Any, kind: Any) -> bool:
    choices = typing.get_args(kind)
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return any(_fits(value, choice) for choice in choices)
    if typing.get_origin(kind) is Literal:
        return value in choices
    if typing.get_origin(kind) is tuple:
        return isinstance(value, list) and all(_fits(item, choices[0]) for item in value)
    return type(value) is kind  # exactly: True is an int, but no number of workers


def _words(kind: Any) -> str:
    choices = typing.get_args(kind)
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return " or ".join(_words(choice) for choice in choices if choice is not type(None))
    if typing.get_origin(kind) is Literal:
        return " or ".join(repr(choice) for choice in choices)
    if typing.get_origin(kind) is tuple:
        return f"a list, each of it {_words(choices[0])}"
    return {str: "a string", int: "a whole number", float: "a number", bool: "true or false"}[kind]
