"""Every setting of the trainer: its default, help text and validation, in one frozen dataclass.

Nothing heavy is imported in this package, so that `--help` answers at once.
"""

import dataclasses
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from es.config.learning import AlgorithmSettings
from es.config.option import is_wrapper
from es.config.running import RunSettings


@dataclass(frozen=True)
class Config(RunSettings, AlgorithmSettings):  # the last base's fields come first
    """Train control policies with Evolution Strategies, or watch a trained one."""

    @property
    def optimizer_name(self) -> str:
        """Return the optimiser, by whichever flag it was chosen."""
        return self.optimizer or ("adam" if self.use_adam else "sgd")

    @property
    def n_most(self) -> int:
        """Return how many perturbations an update has at most."""
        return (self.n_max or 10 * self.n) if self.frames_per_update else self.n

    def imports(self) -> dict[str, tuple[str, ...]]:
        """Return by field the settings that import modules which a file may not choose."""
        wrapped = (word.partition(":") for word in self.env_wrapper if is_wrapper(word))
        foreign = any(module != "gymnasium.wrappers" for module, *_ in wrapped)
        return {
            **({"env_name": (self.env_name,)} if ":" in self.env_name else {}),
            **({"env_wrapper": self.env_wrapper} if foreign else {}),
        }

    def hyperparameters(self) -> dict[str, bool | float | str | None]:
        """Return the settings of the algorithm as cells of a table, for comparing runs."""
        values = {name: getattr(self, name) for name in ALGORITHM if name != "use_adam"}
        values["optimizer"] = self.optimizer_name
        return {n: shown(v) if isinstance(v, tuple) else v for n, v in values.items()}

    def saved(self) -> dict[str, Any]:
        """Return the settings that belong to the run, as plain types, without unset ones."""
        values = {f.name: getattr(self, f.name) for f in FIELDS.values() if f.metadata["saved"]}
        if not self.restore:
            values.pop("override")  # or the file could override another run's settings
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in values.items()
            if value not in (None, "")
        }


FIELDS = {field.name: field for field in dataclasses.fields(Config)}
TYPES = typing.get_type_hints(Config)
ALGORITHM = [name for name, field in FIELDS.items() if field.metadata["algorithm"]]


def flag(name: str) -> str:
    """Return a field's flag: `lr_decay` -> `--lr-decay`."""
    return "--" + (FIELDS[name].metadata["name"] or name.replace("_", "-"))


def shown(value: Any) -> str:
    """Return a value as it is written after its flag."""
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def flags_of(settings: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the words of a command line that give these settings, each of which has several."""
    return [word for name, words in settings.items() for word in (flag(name), *words)]


def flag_with_value(name: str, value: Any) -> str:
    """Return a setting as on a command line: `--lr 0.1`, `--small-net`."""
    return flag(name) if value is True else f"{flag(name)} {shown(value)}"
