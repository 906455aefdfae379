"""Sources of settings: the flags, over a TOML file, a restored checkpoint and the defaults."""

import dataclasses
import difflib
import json
import reprlib
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from es.config import (
    ALGORITHM,
    FIELDS,
    OF_OUR_NETWORKS,
    TYPES,
    Config,
    flag,
    flag_with_value,
    shipped,
    shown,
)
from es.config.elsewhere import OURS
from es.config.flags import argument, read
from es.config.learning import default_lr
from es.config.validation import broken_rules, require, validate
from es.errors import UsageError, in_one_line
from es.program import command, read_file

MOST_BYTES = 2**20  # of a settings file
TITLE = "# The settings of this run: repeat it with --config and this file."
CHANGED = "# The last settings of this run, which do not repeat it, as others held before:"
OPTIMIZER = ("optimizer", "use_adam")  # two ways to choose it


def read_flags(argv: Sequence[str], others: Sequence[tuple[str, Any, Any]] = ()) -> dict[str, Any]:
    """Return the settings that a command line gives, by field name.

    others: more flags, made by `argument`, which an error may suggest. Exit with status 0 for
    `--help`; raise UsageError if the command line cannot be read. The values are not validated yet.
    """
    import tyro  # here: worker processes import this module and never parse

    groups: dict[str, list[tuple[str, Any, Any]]] = {"others": list(others)} if others else {}
    for field in FIELDS.values():
        entry = argument(field, TYPES[field.name], field.default)
        groups.setdefault(field.metadata["group"], []).append(entry)
    # tyro shows a nested dataclass as a group of the help text.
    nested: list[tuple[str, Any, Any]] = []
    for group, entries in groups.items():
        options: Any = dataclasses.make_dataclass(group.capitalize(), entries, frozen=True)
        nested.append((group, options, dataclasses.field(default_factory=options)))
    parsed = read(
        dataclasses.make_dataclass("Flags", nested, frozen=True),
        argv,
        "main",
        description=f"{Config.__doc__}\n\n{_examples()}",
        # Without the search for help texts in the sources, which takes most of the time.
        config=(tyro.conf.OmitArgPrefixes, tyro.conf.HelptextFromCommentsOff),
    )
    values: dict[str, Any] = {}
    for group in groups.keys() - {"others"}:
        values |= vars(getattr(parsed, group))
    return {name: values[name] for name in given(argv)}


def _examples() -> str:
    """Return commands for the help text."""
    train = ("--config", "CartPole-v1"), ("--env-name", "CartPole-v1", "--target-return", "475")
    watch = ("--test", "--restore", "checkpoints/CartPole-v1")
    return "\n".join(["Examples:", *(f"  {command('main', *words)}" for words in (*train, watch))])


def combine(
    flags: Mapping[str, Any],
    file: Mapping[str, Any] | None = None,
    checkpoint: Mapping[str, Any] | None = None,
) -> Config:
    """Return the settings of three layers, of which the first is the highest, over the defaults.

    A setting takes back those that have no use beside it from lower layers. Raise UsageError, which
    names the layers, if others break a rule, but not while --restore is given and `checkpoint` is
    None: the checkpoint's settings are still missing.
    """
    file = file or {}
    restore = flags.get("restore", file.get("restore"))
    layers = {
        f"--restore {restore}": checkpoint or {},
        f"--config {flags.get('config')}": file,
        "": flags,
    }
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    ranks: dict[str, int] = {}
    for rank, (source, settings) in enumerate(layers.items()):
        values |= settings
        sources |= dict.fromkeys(settings, source)
        ranks |= dict.fromkeys(settings, rank)
    while rule := next(broken_rules(complete(values)), None):
        highest = max(ranks.get(name, -1) for name in rule.settings)
        lower = [name for name in rule.yielding if name in values and ranks[name] < highest]
        for name in lower:
            del values[name]
            ranks[name] = highest
        if lower:
            continue
        if restore and checkpoint is None:
            break
        validate(complete(values), combinations=False)  # a wrong value may be all that is wrong
        places = [
            f"{flag_with_value(name, values[name])} is from {sources[name]}"
            for name in rule.settings
            if sources.get(name) and values[name] != FIELDS[name].default
        ]
        raise UsageError("; ".join([rule.message, *places]))
    return complete(values)


def complete(values: Mapping[str, Any]) -> Config:
    """Return the settings with these values, the others by default."""
    return Config(**{"lr": default_lr(values.get("max_speed")), **values})


def given(argv: Sequence[str]) -> set[str]:
    """Return the fields whose flags are on a command line."""
    words = {word.partition("=")[0].replace("_", "-") for word in argv}
    return {name for name in FIELDS if words & {flag(name), flag(name).replace("--", "--no-", 1)}}


def field_names(keys: Iterable[str], source: str) -> dict[str, str]:
    """Return the field of each key, which is spelled as its flag or as the field.

    Raise UsageError, naming `source`, for an unknown key, or two of the same field.
    """
    known = {word: name for name in FIELDS for word in (flag(name)[2:], name)}
    keys_of: dict[str, str] = {}
    for key in keys:
        if key not in known:
            ours = OURS.get(f"--{key.replace('_', '-')}", "--")[2:]
            close = ours or "".join(difflib.get_close_matches(key, known, n=1))
            hint = f"; perhaps you meant {close}" if close else " (see --help)"
            raise UsageError(f"{source}: unknown setting {key!r}{hint}")
        if (other := keys_of.setdefault(known[key], key)) != key:
            raise UsageError(
                f"{source}: {flag(known[key])} is set twice, as {other} and as {key}; "
                "leave one of them out"
            )
    return {key: name for name, key in keys_of.items()}


def from_mapping(settings: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Return settings by field name, with checked types, from keys spelled as flags or as fields.

    Raise UsageError, naming `source`, as `field_names` does, or for a value of the wrong type.
    """
    from pydantic import TypeAdapter, ValidationError  # here: most command lines name no file

    checked: dict[str, Any] = {}
    for key, name in field_names(settings, source).items():
        value = settings[key]
        try:
            checked[name] = TypeAdapter(TYPES[name]).validate_python(
                tuple(value) if isinstance(value, list) else value, strict=True
            )
        except ValidationError as error:
            wanted = {fault["msg"].removeprefix("Input should be ") for fault in error.errors()}
            words = " or ".join(sorted(wanted)).replace("tuple", "list")
            raise UsageError(f"{source}: {key} = {reprlib.repr(value)}: must be {words}") from error
    return checked


def read_config(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings in the file of --config, if any, by field name.

    Those of our networks are left out with --net, and the file's target and directory with another
    --env-name than its own. flags: the settings that are given by flags.
    """
    if flags.get("config") is None:
        return {}
    file = read_toml(flags["config"])
    left_out = {*OF_OUR_NETWORKS} if flags.get("net") else set[str]()
    env_name = flags.get("env_name")
    if env_name is not None and env_name != file.get("env_name", env_name):
        left_out |= {"target_return", "run_dir"}
    return {name: file[name] for name in file if name not in left_out}


def read_toml(path: str, named: str = "--config") -> dict[str, Any]:
    """Read a settings file's values by field name; raise UsageError for any fault in it.

    named: the flag that the path was given with, if any.
    """
    path = shipped.find(path) if named == "--config" else path
    source = f"{named} {path}" if named else path
    checked = from_mapping(load_toml(path, source), source)
    for name, value in checked.items():
        if not FIELDS[name].metadata["saved"]:
            raise UsageError(f"{source}: {flag(name)} belongs on the command line")
        require(f"{source}: {flag(name)}", value, FIELDS[name].metadata["check"])
    return checked


def load_toml(path: str, source: str) -> dict[str, Any]:
    """Return the contents of a TOML file; raise UsageError, naming `source`, if it is none."""
    try:
        text = read_file(path, MOST_BYTES)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{source}: cannot be read ({reason}){shipped.hint(path)}") from error
    try:
        return tomllib.loads(text.decode())
    except (ValueError, RecursionError) as error:  # bad syntax, bytes or numbers; too deep
        raise UsageError(f"{source}: is not valid TOML ({error})") from error


def run_title(history: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the comments of a run's settings file; history: of its checkpoint."""
    return "\n# ".join([CHANGED, *describe_history(history)]) if history else TITLE


def write_toml(settings: Mapping[str, Any], title: str = TITLE) -> str:
    """Return the text of a settings file, which `read_toml` reads back; title: comments."""
    lines = [title]
    for name, value in settings.items():
        # JSON strings, numbers, truth values and lists are valid TOML, but for one character.
        text = json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        lines.append(f"{flag(name)[2:]} = {text}")
    return "\n".join([*lines, ""])


def inherited(settings: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Check a checkpoint's settings; return them by field name. Raise UsageError with `source`."""
    found = from_mapping(settings, source)
    own = {name: value for name, value in found.items() if FIELDS[name].metadata["saved"]}
    try:
        validate(Config(**own))
    except UsageError as error:
        raise UsageError(f"{source}: is damaged ({error})") from error
    return own


def differences(config: Config, before: Config, names: Sequence[str] = ()) -> list[str]:
    """Describe the `changes`."""
    return [
        f"{flag(name)} {shown(getattr(config, name))} differs from the checkpoint's "
        f"{shown(then) or 'nothing'}"
        for name, then in changes(config, before, names).items()
    ]


def changes(config: Config, before: Config, names: Sequence[str] = ()) -> dict[str, Any]:
    """Return the former values of the algorithm's settings (or `names`) that `config` changes.

    before: the settings of a checkpoint.
    """
    same = OPTIMIZER if config.optimizer_name == before.optimizer_name else ()
    return {
        name: then
        for name in names or deciding(config, before)
        if getattr(config, name) != (then := getattr(before, name)) and name not in same
    }


def deciding(*configs: Config) -> list[str]:
    """Return the settings that decide what a run with these settings computes."""
    # A schedule depends on the number of updates.
    constant = all(config.lr_schedule == "constant" for config in configs)
    return ALGORITHM if constant else [*ALGORITHM, "max_gradient_updates"]


def describe_history(history: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return a line for each time that settings were changed, by the updates before it."""
    return [
        in_one_line(
            f"until update {update}: "
            + ", ".join(f"{flag(name)} {shown(value)}".strip() for name, value in former.items())
        )
        for update, former in history.items()
    ]
