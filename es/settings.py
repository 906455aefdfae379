"""Where settings come from: flags, keywords, a TOML file, a checkpoint. Each gives a plain dict.

`resolve` merges them into a `Config`: flags or keywords override the file, and the file overrides
the checkpoint.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from es import checkpoint as checkpoints
from es.checkpoint import Checkpoint
from es.config import (
    ALGORITHM,
    FIELDS,
    KINDS,
    OF_OUR_NETWORKS,
    OTHER_NAMES,
    PHASE_STARTS,
    Config,
    Kind,
    default_in_words,
    field_name,
    flag,
    flag_with_value,
    from_mapping,
    require_needed,
    settle,
    shown,
)
from es.errors import PROJECT, RunError, UsageError, command, program, suggest

# Installed, the tuned settings lie in the package. In a checkout, they lie beside it.
PACKAGE = PROJECT / "es"
CONFIGS = (PACKAGE if (PACKAGE / "configs").is_dir() else PROJECT) / "configs"
SETTINGS_OF_ENVIRONMENT = (
    "env_name", "env_kwargs", "env_wrapper", "frame_skip", "noop_max", "fire_reset",
    "sticky_actions",
)  # fmt: skip
SETTINGS_OF_SCORES = (
    *SETTINGS_OF_ENVIRONMENT, "max_episode_length", "episodes_per_perturbation", "sample_actions"
)  # fmt: skip
SETTINGS_OF_POLICY = (
    "net", "net_kwargs", "hidden_sizes", "activation", "obs_norm", "vbn", "action_bins", "squash"
)  # fmt: skip
OBJECTS = ("env_name", "env_wrapper", "net")  # keywords that take classes and functions, too
KEYWORDS = [name for name, field in FIELDS.items() if field.metadata["group"] != "watching"]
GYMNASIUM_WRAPPERS = "gymnasium.wrappers"


# ---- flags ----


class Parser(argparse.ArgumentParser):
    """A parser whose errors are UsageErrors."""

    def __init__(self, tool: str, description: str) -> None:
        words = program(tool)
        name = Path(words[-1]).name if words[-1].endswith(".py") else " ".join(words)
        super().__init__(
            prog=name,
            description=description,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            argument_default=argparse.SUPPRESS,
            allow_abbrev=False,
        )
        # Numbers such as -1e30 are values, not flags.
        self._negative_number_matcher = re.compile(r"-\.?\d")

    def error(self, message: str) -> NoReturn:
        """Raise UsageError."""
        raise UsageError(message.removeprefix("argument "))

    def add_fields(self, settings: type, *, hidden: bool = False) -> None:
        """Add a flag for each field of a dataclass, made by `es.config.option`."""
        self.usage = "%(prog)s [FLAGS]"
        groups = dict[str, Any]()
        for field in dataclasses.fields(settings):
            about, kind = field.metadata, Kind.of(field.type)
            if field.name == "phase":  # tables are not written on a command line
                continue
            if about["group"] not in groups:
                groups[about["group"]] = self.add_argument_group(f"{about['group']} flags")
            text = f"{about['help']} (default: {default_in_words(field)})".replace("%", "%%")
            options: dict[str, Any] = {"help": argparse.SUPPRESS if hidden else text}
            if kind.scalar is bool:
                # A flag that no file can set needs no counterpart to switch it off.
                saved = about["saved"]
                options["action"] = argparse.BooleanOptionalAction if saved else "store_true"
            else:
                options |= {"metavar": kind.metavar, "type": kind.parse}
                if kind.is_list:  # if it is given twice, the words of both count
                    options["nargs"] = "*"
                    options["action"] = "extend" if kind.scalar is str else "store"
            groups[about["group"]].add_argument(flag(field.name), dest=field.name, **options)
            if field.name == "optimizer":  # pytorch-es's flag
                self.add_argument(
                    "--useAdam", action="store_const", const="adam", dest="optimizer",
                    help=argparse.SUPPRESS,
                )  # fmt: skip

    def read(self, argv: Sequence[str]) -> dict[str, Any]:
        """Return the values that a command line gives, by name.

        Exit with status 0 for `--help`. Raise UsageError if the command line cannot be read.
        """
        # Names have hyphens, and may be written with underscores.
        spelled = [
            re.sub(r"^--[\w-]+", lambda found: found[0].replace("_", "-"), word) for word in argv
        ]
        parsed, unknown = self.parse_known_args(spelled)
        if unknown:
            raise UsageError(self._unknown(unknown[0].partition("=")[0]))
        values = vars(parsed).items()
        return {name: tuple(value) if isinstance(value, list) else value for name, value in values}

    def _unknown(self, word: str) -> str:
        if not word.startswith("--"):
            return f"unexpected argument {word!r}; see --help"
        if meant := OTHER_NAMES.get(word[2:].replace("-", "_")):
            return f"unknown flag {word}; did you mean {flag(meant)}?"
        known = [option for option in self._option_string_actions if option.startswith("--")]
        return f"unknown flag {word}{suggest(word, known) or '; see --help'}"


def from_argv(argv: Sequence[str]) -> dict[str, Any]:
    """Return the settings that the trainer's command line gives, by field name.

    Exit with status 0 for `--help`. Raise UsageError if it cannot be read.
    """
    train = ("--config", "CartPole-v1"), ("--env-name", "CartPole-v1", "--target-return", "475")
    play = ("--test", "--restore", "checkpoints/CartPole-v1")
    examples = "\n".join(f"  {command('main', *words)}" for words in (*train, play))
    parser = Parser("main", f"{Config.__doc__}\n\nExamples:\n{examples}")
    parser.add_fields(Config)
    return parser.read(argv)


# ---- files ----


def load_toml(path: str, source: str) -> dict[str, Any]:
    """Return the contents of a TOML file; raise UsageError, with `source`, if it is none."""
    try:
        return tomllib.loads(Path(path).read_bytes().decode())
    except OSError as error:
        raise UsageError(f"{source}: cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:  # bad syntax, bytes or numbers; too deep
        hint = 'Strings need quotes, as in optimizer = "adam"'
        raise UsageError(f"{source}: is not valid TOML ({error}). {hint}") from error


def read_toml(path: str, source: str) -> dict[str, Any]:
    """Return the settings in a TOML file by field name; raise UsageError for any fault in it."""
    values = from_mapping(load_toml(path, source), source)
    for name in values:
        if not FIELDS[name].metadata["saved"]:
            raise UsageError(f"{source}: {flag(name)} belongs on the command line")
    return values


def read_config(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings in the file of --config, if any, by field name.

    With --net, the settings of our networks are left out. With an --env-name other than the file's,
    its target and directory are. given: the settings of flags or keywords.
    """
    if given.get("config") is None:
        return {}
    path = _find(given["config"])
    file = read_toml(path, f"--config {path}")
    left_out = {*OF_OUR_NETWORKS} if given.get("net") else set[str]()
    env_name = given.get("env_name")
    if env_name is not None and env_name != file.get("env_name", env_name):
        left_out |= {"target_return", "run_dir"}
    return {name: file[name] for name in file if name not in left_out}


def write_toml(settings: Mapping[str, Any], title: str) -> str:
    """Return the text of a settings file, which `read_toml` reads back. title: comments."""
    lines = [title, *(_toml_line(*item) for item in settings.items() if item[0] != "phase")]
    for table in settings.get("phase", ()):
        lines += ["", "[[phase]]", *(_toml_line(*item) for item in table.items())]
    return "\n".join([*lines, ""])


def _toml_line(name: str, value: Any) -> str:
    # JSON strings, numbers, truth values and lists are valid TOML, but for one character.
    value = "None" if value is None else value  # of a phase, which removes a setting
    text = json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    key = name.replace("_", "-") if name in PHASE_STARTS else flag(name)[2:]
    return f"{key} = {text}"


def tuned_settings() -> dict[str, list[str]]:
    """Return the shipped files by the environment that they are for, and by their own name."""
    found: dict[str, list[str]] = {}
    for path in sorted(CONFIGS.glob("*.toml")):
        name = tomllib.loads(path.read_text()).get("env-name")
        for key in {name, path.stem} if name else ():  # both may be registered
            found.setdefault(key, []).append(f"configs/{path.name}")
    return found


def _find(name: str) -> str:
    """Return the path of a settings file: `name`, or the one that is shipped as `name`.

    Raise UsageError, which suggests the file that is meant, if there is none.
    """
    shipped = {file.stem: str(file) for file in CONFIGS.glob("*.toml")}
    if os.path.isfile(name):
        return name
    if path := shipped.get(name.removesuffix(".toml")):
        return path
    beside = map(str, Path(name).parent.glob("*.toml"))
    raise UsageError(f"--config {name}: there is no such file{suggest(name, [*beside, *shipped])}")


# ---- keywords ----


@contextmanager
def errors_in_keywords() -> Iterator[None]:
    """Make errors say `max_speed` instead of `--max-speed`.

    Shell commands below a message stay as they are.
    """
    by_flag = {flag(name): name for name in KEYWORDS}
    try:
        yield
    except RunError as error:
        error.message = re.sub(
            r"--[a-zA-Z][a-zA-Z-]*", lambda found: by_flag.get(found[0], found[0]), error.message
        )
        raise


def from_keywords(keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings by field name.

    Arguments can be given as a dict, sequences as lists, numbers as NumPy's, paths as `Path`s, and
    MODULE:NAME as the class or function itself. Raise UsageError for an unknown keyword or a value
    of the wrong type.
    """
    values: dict[str, Any] = {}
    for key, value in keywords.items():
        name = field_name(key, "arguments")
        if name not in KEYWORDS:
            raise UsageError(f"{name} belongs on the command line; load_policy plays a policy")
        values[name] = _plain(name, value)
    return from_mapping(values, "arguments")


def _plain(name: str, value: Any) -> Any:
    """Return the value of a keyword as a settings file has it."""
    if name == "phase":
        return (
            [_plain_table(table) for table in value] if isinstance(value, list | tuple) else value
        )
    words = tuple(_words(name, value))
    is_list = name in KINDS and KINDS[name].is_list
    return words if is_list or len(words) != 1 else words[0]


def _plain_table(table: Any) -> Any:
    if not isinstance(table, Mapping):
        return table
    return {key: _plain(str(key).replace("-", "_"), item) for key, item in table.items()}


def _words(name: str, value: Any) -> Iterator[Any]:
    """Yield the words of a setting on the command line: lists and dicts hold more of them."""
    if hasattr(value, "tolist"):  # of NumPy or torch
        value = value.tolist()
    if isinstance(value, Mapping):
        yield from (f"{key}={_literal(name, key, item)}" for key, item in value.items())
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _words(name, item)
    elif isinstance(value, os.PathLike):
        yield os.fspath(value)
    elif callable(value) and hasattr(value, "__qualname__"):
        if not value.__qualname__.isidentifier():
            raise UsageError(
                f"{name}={value.__qualname__} must be defined at the top level of a module or "
                "script"
            )
        # Those of Gymnasium have one name, whichever of its files they are in.
        in_gymnasium = value.__module__.startswith(GYMNASIUM_WRAPPERS)
        module = GYMNASIUM_WRAPPERS if in_gymnasium else value.__module__
        yield f"{module}:{value.__qualname__}"
    elif name in OBJECTS and not isinstance(value, str | None):
        raise UsageError(
            f"{name} must be a name, a class or a function (its arguments beside it), not an "
            f"object of {type(value).__name__}"
        )
    else:
        yield value


def _literal(name: str, key: Any, value: Any) -> str:
    """Return an argument's value as it is written on a command line; raise UsageError."""
    value = value.tolist() if hasattr(value, "tolist") else value
    text = repr(os.fspath(value) if isinstance(value, os.PathLike) else value)
    try:
        ast.literal_eval(text)
    except (ValueError, SyntaxError) as error:
        raise UsageError(
            f"{name} {key}={text:.100} must be a number, a string, or a list or dict of these, "
            "since a checkpoint holds it"
        ) from error
    return text


# ---- all sources together ----


def resolve(given: Mapping[str, Any], file: Mapping[str, Any]) -> tuple[Config, Checkpoint | None]:
    """Return the settings, and the checkpoint of --restore if it is given.

    given: the settings of flags or keywords. file: those of --config. Raise UsageError if one is
    wrong, if they contradict the checkpoint in what the policy is made of or, without --override,
    in anything else, or if the checkpoint names the user's modules and --trust is not given.
    """
    path = given.get("restore", file.get("restore"))
    if not path:
        return combine(given, file), None
    path = checkpoints.find(path)
    checkpoint = checkpoints.load(path)
    given = {**given, "restore": path}
    before = checkpoint.config
    if before is None:  # weights alone
        return combine(given, file), checkpoint
    left_out = {"restore", "run_dir", "override"}
    if given.get("test") or given.get("export"):
        left_out.add("silent")  # these should say something about a run that was silent
    saved = {name: value for name, value in before.saved().items() if name not in left_out}
    config = combine(given, file, saved)
    for name, words in config.user_modules.items():
        if name not in given and name not in file and not config.trust:
            place = "[[phase]]" if name == "phase" else flag(name)
            named = tuple(dict.fromkeys(word for word in words if ":" in word))
            raise UsageError(
                f"--restore {path}: its {place} {shown(named)} would import a module. Give "
                "--trust if you trust the file"
            )
    _require_same(config, before)
    if config.override:  # what is given holds anew, not as it has decayed
        anew = {name: given[name] for name in ("lr", "sigma") if given.get(name)}
        checkpoint = checkpoint._replace(counters=checkpoint.counters._replace(**anew))
    return config, checkpoint


def combine(
    given: Mapping[str, Any], file: Mapping[str, Any], saved: Mapping[str, Any] | None = None
) -> Config:
    """Merge three layers of settings over the defaults: `saved`, under `file`, under `given`.

    Raise UsageError, which names the layers, if a value is wrong, if `settle` cannot mend a broken
    rule, or if a setting lacks the one that it needs. Phases are checked when a training starts.
    """
    layers = (saved or {}, file, given)
    sources = (f"--restore {given.get('restore')}", f"--config {given.get('config')}", "")
    config = settle(layers, sources)
    require_needed(given, config)
    return config


def changes(
    config: Config, before: Config, names: Sequence[str] | None = None
) -> list[tuple[str, Any]]:
    """Return the settings that `config` changes, with their former values.

    before: the settings of a checkpoint. names: the settings to compare, by default all that decide
    on the result.
    """
    if names is None:
        # A schedule depends on the number of updates.
        scheduled = {config.lr_schedule, before.lr_schedule} != {"constant"}
        names = [*ALGORITHM, "max_gradient_updates"] if scheduled else ALGORITHM
    return [
        (name, before.canonical(name))
        for name in names
        if _without_modules(name, config.canonical(name))
        != _without_modules(name, before.canonical(name))
    ]


def _without_modules(name: str, value: Any) -> Any:
    """Return a setting without the module that it names: a class may move to another one."""
    words = value if isinstance(value, tuple) else (value,)
    return [str(word).rpartition(":")[2] for word in words] if name in OBJECTS else value


def scored_alike(config: Config, before: Config) -> bool:
    """Return whether scores with both settings can be compared."""
    return not changes(config, before, SETTINGS_OF_SCORES)


def _require_same(config: Config, before: Config) -> None:
    """Raise UsageError if the settings contradict those of a checkpoint."""
    # A phase of the file may have changed the setting since, so that the user gave no such flag.
    remove = "Remove the flag" if config.config is None else "Remove the flag, or --config"
    changed = changes(config, before, SETTINGS_OF_POLICY)
    remedy = f"The policy was made for the checkpoint's value. {remove}, or start a new run"
    if not changed and not config.override:
        changed = changes(config, before, ["env_name"] if config.mode != "train" else None)
        remedy = f"{remove}, or give --override to change the setting"
    if changed:
        differences = [
            f"{flag_with_value(name, config.canonical(name))} differs from the checkpoint's "
            f"{shown(then) or 'nothing'}"
            for name, then in changed
        ]
        raise UsageError(f"{'; '.join(differences)}. {remedy}")
