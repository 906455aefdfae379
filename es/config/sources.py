"""Where settings come from: defaults, then a restored checkpoint's, a TOML file's, the flags."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import io
import json
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from es.config import FIELDS, TYPES, Config, flag, shipped
from es.config.explanation import explain, in_words
from es.config.validation import validate
from es.errors import UsageError

MAX_WHOLE_FLOAT = 10**300
MOST_BYTES = 2**20  # of a settings file
TITLE = "# The settings of this run: repeat it with --config and this file."
OPTIMIZER = ("optimizer", "use_adam")  # two ways to choose it


def parse(argv: Sequence[str], settings: Mapping[str, Any] | None = None) -> Config:
    """The command line's `Config`, with `settings` (field name -> value) as the defaults.

    Exits with status 0 for `--help`; raises UsageError where it cannot be read. The values are not
    yet validated.
    """
    import tyro  # here, because worker processes import this module and never parse

    base = dataclasses.replace(Config(), **(settings or {}))
    groups: dict[str, list[tuple[str, Any, Any]]] = {}
    for field in FIELDS.values():
        entry = argument(field, TYPES[field.name], getattr(base, field.name))
        groups.setdefault(field.metadata["group"], []).append(entry)
    # tyro shows a nested dataclass as a group of the help text.
    nested: list[tuple[str, Any, Any]] = []
    for group, fields in groups.items():
        options: Any = dataclasses.make_dataclass(group.capitalize(), fields, frozen=True)
        nested.append((group, options, dataclasses.field(default_factory=options)))
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # where tyro would draw a box
            parsed: Any = tyro.cli(
                dataclasses.make_dataclass("Flags", nested, frozen=True),
                args=list(argv),
                prog="main.py",
                description=Config.__doc__,
                # Nor are help texts looked for in sources, which takes longer than all else.
                config=(tyro.conf.OmitArgPrefixes, tyro.conf.HelptextFromCommentsOff),
            )
    except SystemExit as leaving:
        if not leaving.code:
            raise
        raise mistake(argv) from None
    values: dict[str, Any] = {}
    for group in groups:
        values |= vars(getattr(parsed, group))
    return Config(**values)


def mistake(argv: Sequence[str], more: Mapping[str, Any] | None = None) -> UsageError:
    """What is wrong with a command line; more: flags beside the trainer's, and their types."""
    kinds = {flag(name): TYPES[name] for name in FIELDS} | dict(more or {})
    # One that a file may have switched on can be switched off.
    switches = [
        flag(name).replace("--", "--no-", 1)
        for name, field in FIELDS.items()
        if TYPES[name] is bool and field.metadata["saved"]
    ]
    return UsageError(explain(argv, kinds, switches))


def argument(field: dataclasses.Field, kind: Any, value: Any) -> tuple[str, Any, Any]:
    """What `dataclasses.make_dataclass` takes to make a flag for tyro, whose default is `value`.

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


def given(argv: Sequence[str]) -> set[str]:
    """The fields whose flags are on a command line."""
    words = {word.partition("=")[0].replace("_", "-") for word in argv}
    return {name for name in FIELDS if words & {flag(name), flag(name).replace("--", "--no-", 1)}}


def field_names(keys: Iterable[str], source: str) -> dict[str, str]:
    """The field that each key stands for, spelled as its flag or as the field.

    Raises UsageError, naming `source`, for an unknown key, or two of the same field.
    """
    known = {flag(name)[2:]: name for name in FIELDS} | {name: name for name in FIELDS}
    keys_of: dict[str, str] = {}
    for key in keys:
        if key not in known:
            raise UsageError(f"{source}: unknown setting {key!r} (see --help)")
        other = keys_of.setdefault(known[key], key)
        if other != key:
            raise UsageError(
                f"{source}: {flag(known[key])} is set twice, as {other} and as {key}; "
                "leave one of them out"
            )
    return {key: name for name, key in keys_of.items()}


def from_mapping(settings: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Checked settings by field name, from keys spelled as flags or as fields.

    Raises UsageError, naming `source`, as `field_names` does, or for a value of the wrong type.
    """
    checked: dict[str, Any] = {}
    for key, name in field_names(settings, source).items():
        value = settings[key]
        kinds = typing.get_args(TYPES[name]) or (TYPES[name],)
        if float in kinds and type(value) is int and abs(value) < MAX_WHOLE_FLOAT:
            checked[name] = float(value)
        elif _fits(value, TYPES[name]):
            checked[name] = tuple(value) if isinstance(value, list) else value
        else:
            raise UsageError(f"{source}: {key} = {value!r} is not {in_words(TYPES[name])}")
    return checked


def read_toml(path: str, named: str = "--config") -> dict[str, Any]:
    """A settings file's values by field name; raises UsageError for any fault in it.

    named: what on the command line the path comes from, if anything.
    """
    path = shipped.find(path) if named == "--config" else path
    source = f"{named} {path}" if named else path
    checked = from_mapping(load_toml(path, source), source)
    for name in checked:
        if not FIELDS[name].metadata["saved"]:
            raise UsageError(f"{source}: {flag(name)} belongs on the command line")
    return checked


def load_toml(path: str, source: str) -> dict[str, Any]:
    """What a TOML file holds; raises UsageError, naming `source`, where it is none."""
    try:
        with Path(path).open("rb") as file:
            text = file.read(MOST_BYTES + 1)
        if len(text) > MOST_BYTES:
            raise UsageError(f"{source}: is no settings file, which would be small")
        return tomllib.loads(text.decode())
    except OSError as error:
        raise UsageError(f"{source}: cannot be read ({error.strerror}){_hint(path)}") from error
    except (ValueError, RecursionError) as error:  # bad syntax, bytes or numbers; too deep
        raise UsageError(f"{source}: is not valid TOML ({error})") from error


def _hint(path: str) -> str:
    """The file that was likely meant by a path of none."""
    with contextlib.suppress(OSError, ValueError):
        names = [file.name for file in Path(path).parent.glob("*.toml")]
        close = difflib.get_close_matches(Path(path).name, names, n=1)
        return f"; did you mean {Path(path).with_name(close[0])}?" if close else ""
    return ""


def write_toml(settings: Mapping[str, Any], title: str = TITLE) -> str:
    """The text of a settings file that `read_toml` reads back to `settings`; title: comments."""
    # A JSON string, number or truth value is also one of TOML, but for one character.
    values = {
        name: json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        for name, value in settings.items()
    }
    lines = [f"{flag(name)[2:]} = {value}" for name, value in values.items()]
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
    """Sentences for the settings of the algorithm (or `names`) in which `config` differs.

    settings: a checkpoint's, as of `inherited`: what is not in them was left at its default.
    """
    before = Config(**settings)
    if not names:
        names = deciding(config)
    found = {name: (getattr(config, name), getattr(before, name)) for name in names}
    if config.optimizer_name == before.optimizer_name:  # however it was chosen
        found = {name: pair for name, pair in found.items() if name not in OPTIMIZER}
    return [
        f"{flag(name)} {_shown(now)} differs from the checkpoint's {_shown(then)}"
        for name, (now, then) in found.items()
        if now != then
    ]


def deciding(config: Config) -> list[str]:
    """The settings that decide what this run computes."""
    names = [name for name, field in FIELDS.items() if field.metadata["algorithm"]]
    # A schedule is laid out for the number of updates.
    return names if config.lr_schedule == "constant" else [*names, "max_gradient_updates"]


def _shown(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _fits(value: Any, kind: Any) -> bool:
    choices = typing.get_args(kind)
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return any(_fits(value, choice) for choice in choices)
    if typing.get_origin(kind) is Literal:
        return value in choices
    if typing.get_origin(kind) is tuple:
        return isinstance(value, list) and all(_fits(item, choices[0]) for item in value)
    return type(value) is kind  # exactly: True is an int, but no number of workers


def _metavar(kind: Any) -> str | None:
    """What stands for a value in the help text, where it would say that None can be typed."""
    choices = [choice for choice in typing.get_args(kind) if choice is not type(None)]
    if typing.get_origin(kind) is not types.UnionType:
        return None
    words = []
    for choice in choices:
        if typing.get_origin(choice) is Literal:
            words.append(",".join(typing.get_args(choice)))
        elif typing.get_origin(choice) is tuple:
            words.append("[WORD [WORD ...]]")
        else:
            words.append(choice.__name__.upper())
    return "|".join(words)
