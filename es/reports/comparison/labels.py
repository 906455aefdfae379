"""Label groups of runs by their task, and by the settings in which they differ from others."""

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from es.config import ALGORITHM, Config, flag
from es.errors import in_one_line

MLP_SETTINGS = ("hidden_sizes", "activation", "obs_norm")


def identity(config: Config) -> dict[str, Any]:
    """Return the settings that the runs of a group share."""
    values = {name: config.effective(name) for name in ALGORITHM}
    if config.lr_schedule != "constant":  # which depends on the number of updates
        values["max_gradient_updates"] = config.max_gradient_updates
    values["restore"] = config.restore  # the run that it branched off from
    # The observations decide on the network; --small-net is refused for any other.
    unneeded = ("seed", "small_net")
    return {name: value for name, value in values.items() if name not in unneeded}


def label_groups(groups: Sequence[tuple[Path, Config | None]]) -> list[str]:
    """Return a different label for each group, given by the directory and settings of a run."""
    tasks: dict[str, list[dict[str, Any]]] = {}
    for _, config in groups:
        if config:
            tasks.setdefault(config.env_name, []).append(identity(config))
    found = []
    for directory, config in groups:
        if config:
            words = _differences(config, tasks[config.env_name])
            task = [config.env_name] if len(tasks) > 1 or not words else []
            found.append(", ".join(task + words))
        else:
            found.append(directory.resolve().name)  # "." has a name, too
    counts = Counter(found)
    for place, (directory, config) in enumerate(groups):
        if counts[found[place]] > 1:
            found[place] = f"{found[place]} ({directory})" if config else str(directory)
    return [in_one_line(label) for label in found]


def _differences(config: Config, groups: Sequence[dict[str, Any]]) -> list[str]:
    """Return the settings, in words, in which the groups of a task differ.

    Settings that the run's network does not have are left out.
    """
    own, default = identity(config), Config()
    unused: tuple[str, ...] = ()
    if config.vbn:
        unused = MLP_SETTINGS
    elif config.small_net or any(own[name] != getattr(default, name) for name in MLP_SETTINGS):
        unused = ("vbn",)
    words = []
    for name, value in own.items():
        values = {repr(each.get(name)): each.get(name) for each in groups}
        if len(values) > 1 and name not in unused:
            words.append(_words(name, value, list(values.values())))
    return words


def _words(name: str, value: Any, values: Sequence[Any]) -> str:
    """Return a setting in words; a number has as many digits as make it differ from the others."""
    word = flag(name)[2:]
    if name == "restore" and value:  # an absolute path, whose end says what differs
        value = os.path.relpath(value)
    if isinstance(value, bool):
        return word if value else f"no {word}"
    if isinstance(value, tuple):
        value = " ".join(map(str, value))
    elif isinstance(value, float):
        numbers, digits = [each for each in values if isinstance(each, float)], 3
        while len({f"{each:.{digits}g}" for each in numbers}) < len(numbers):
            digits += 1
        value = float(f"{value:.{digits}g}")
    return f"{word} {'default' if value is None else 'none' if value == '' else value}"
