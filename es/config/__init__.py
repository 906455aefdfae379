"""Every setting of the trainer: its default, help text and validation, in one frozen dataclass.

Nothing heavy is imported in this package, so that `--help` answers at once.
"""

import dataclasses
import typing
from dataclasses import dataclass
from typing import Any

from es.config.learning import AlgorithmSettings
from es.config.option import is_wrapper
from es.config.running import RunSettings

OF_OUR_NETWORKS = ("small_net", "hidden_sizes", "activation", "init", "vbn")  # not for --net
Imported = dict[str, tuple[str, ...]]  # flags with their words


@dataclass(frozen=True)
class Config(RunSettings, AlgorithmSettings):  # the last base's fields come first
    """Train control policies with Evolution Strategies, or watch a trained one."""

    @property
    def instead(self) -> str | None:
        """Return the flag of what is done with a policy instead of training it."""
        return "--test" if self.test else "--export" if self.export else None

    @property
    def optimizer_name(self) -> str:
        """Return the optimiser, by whichever flag it was chosen."""
        return self.optimizer or ("adam" if self.use_adam else "sgd")

    @property
    def n_most(self) -> int:
        """Return how many perturbations an update has at most."""
        return (self.n_max or 10 * self.n) if self.frames_per_update else self.n

    @property
    def training_cap(self) -> int:
        """Return the step limit of the first training episodes."""
        return min(self.training_ep_len or self.max_episode_length, self.max_episode_length)

    @property
    def imported(self) -> Imported:
        """Return the flags, with their words, that name modules of the user's own to import.

        A checkpoint is not trusted to choose what is imported: they are given again with it.
        """
        wrappers = filter(is_wrapper, self.env_wrapper)
        wrapped = any(not word.startswith("gymnasium.wrappers:") for word in wrappers)
        named = {
            "env_name": (self.env_name,) if ":" in self.env_name else (),
            "env_wrapper": self.env_wrapper if wrapped else (),
            "net": (self.net,) if self.net else (),
        }
        return {flag(name): words for name, words in named.items() if words}

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


def on_a_command_line(flags: Imported) -> list[str]:
    """Return flags with their words, such as `Config.imported`, one after the other.

    What a script has defined is in no module yet: MODULE stands for that.
    """
    given = [word for name, words in flags.items() for word in (name, *words)]
    return [word.replace("__main__:", "MODULE:") for word in given]


def flag_with_value(name: str, value: Any) -> str:
    """Return a setting as on a command line: `--lr 0.1`, `--small-net`."""
    return flag(name) if value is True else f"{flag(name)} {shown(value)}"
