"""What groups of runs are called: their task, and the settings that set them apart in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from es.config import Config, flag
from es.config.sources import deciding
from es.errors import in_one_line

DIGITS = 3  # of a number, if these tell it from the others
OF_THE_MLP = ("hidden_sizes", "activation", "obs_norm")
SIGNS_OF_THE_MLP = ("small_net", *OF_THE_MLP)  # where they are not at their defaults


def identity(config: Config) -> dict[str, Any]:
    """The settings that its group shares."""
    values = {name: getattr(config, name) for name in deciding(config)}
    values["optimizer"] = config.optimizer_name  # whichever flag it was chosen with
    values["restore"] = config.restore  # what it branched off from
    # Which network it is, the observations decide: --small-net is refused where it is another one.
    unneeded = ("seed", "use_adam", "small_net")
    return {name: value for name, value in values.items() if name not in unneeded}


def labels(groups: Sequence[tuple[Path, Config | None]]) -> list[str]:
    """What sets each group apart from the others, each given by a run's directory and settings."""
    tasks: dict[str, list[dict[str, Any]]] = {}
    for _, config in groups:
        if config:
            tasks.setdefault(config.env_name, []).append(identity(config))
    unnamed = Counter(directory.resolve().name for directory, config in groups if not config)

    def label(directory: Path, config: Config | None) -> str:
        if config is None:
            name = directory.resolve().name  # that of '.', too
            return name if unnamed[name] == 1 else str(directory)
        words = _differences(config, tasks[config.env_name])
        return ", ".join([config.env_name, *words] if len(tasks) > 1 or not words else words)

    found = [in_one_line(label(*group)) for group in groups]
    counts = Counter(found)  # a directory may be called what a group is
    return [
        label if counts[label] == 1 else in_one_line(f"{label} ({directory})")
        for label, (directory, _) in zip(found, groups, strict=True)
    ]


def _differences(config: Config, groups: Sequence[dict[str, Any]]) -> list[str]:
    """The settings, in words, in which the groups of its task differ, and which its network has."""
    own = identity(config)
    default = Config()
    unused: tuple[str, ...] = ()
    if config.vbn:
        unused = OF_THE_MLP
    elif any(getattr(config, name) != getattr(default, name) for name in SIGNS_OF_THE_MLP):
        unused = ("vbn",)
    words = []
    for name in own:
        values = {repr(each.get(name)): each.get(name) for each in groups}
        if len(values) > 1 and name not in unused:
            words.append(_words(name, own[name], list(values.values())))
    return words


def _words(name: str, value: Any, values: Sequence[Any]) -> str:
    """A setting in a label. values: those of all groups."""
    word = flag(name)[2:]
    if isinstance(value, bool):
        return word if value else f"no {word}"
    if isinstance(value, tuple):
        value = " ".join(map(str, value))
    if value == "":
        value = "none"
    if isinstance(value, float):
        value = _rounded(value, [each for each in values if isinstance(each, float)])
    return f"{word} {'default' if value is None else value}"


def _rounded(value: float, values: Sequence[float]) -> float:
    """To DIGITS, or to as many as tell all of these different values apart."""
    digits = DIGITS
    while len({f"{each:.{digits}g}" for each in values}) < len(values):
        digits += 1
    return float(f"{value:.{digits}g}")
