"""Every setting of the trainer: its default, help text and validation, in one frozen dataclass.

Nothing heavy is imported in this package, so that `--help` answers at once.
"""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from es.errors import UsageError

MAX_WORKERS = 100_000
Check = tuple[Callable[[Any], bool], str]
POSITIVE: Check = (lambda value: value > 0, "must be above 0")
NOT_NEGATIVE: Check = (lambda value: value >= 0, "must be 0 or more")
EVEN: Check = (lambda value: value >= 2 and value % 2 == 0, "must be an even number, 2 or more")
NOT_EMPTY: Check = (lambda value: bool(value.strip()), "must not be empty")
WORKERS: Check = (
    lambda value: value == "auto" or 0 <= value <= MAX_WORKERS,
    f"must be 'auto', 0 (no worker processes) or the number of processes, {MAX_WORKERS} at most",
)
SCALE: Check = (
    lambda value: 1e-30 <= value <= 1e30,
    "must be above 0 (1e-30 to 1e30)",
)


def option(
    default: Any,
    group: str,
    help: str,  # noqa: A002 (the word that tyro and argparse use)
    check: Check | None = None,
    *,
    name: str | None = None,
    shown: str | None = None,
    algorithm: bool = False,
    saved: bool = True,
) -> Any:
    """A field of `Config`.

    check: what a value other than None must fulfil, and the words for it.
    name: the flag's name where it is not the field's with hyphens.
    shown: the default in words, where the value says too little.
    algorithm: whether the setting decides what is computed, so that resuming keeps it.
    saved: whether it belongs to the run (and its settings files) or to this command alone.
    """
    metadata = {
        "group": group, "help": help, "check": check, "name": name, "shown": shown,
        "algorithm": algorithm, "saved": saved,
    }  # fmt: skip
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Config:
    """Train control policies with Evolution Strategies, or watch a trained one."""

    env_name: str = option(
        "PongDeterministic-v4", "task", "Gymnasium environment id.", NOT_EMPTY, algorithm=True
    )
    small_net: bool = option(
        False, "task", "Use the small MLP instead of the Convnet-LSTM.", algorithm=True
    )
    max_episode_length: int = option(
        100_000, "task", "Steps per episode at most.", POSITIVE, algorithm=True
    )
    variable_ep_len: bool = option(
        False,
        "task",
        "After each update, cap training episodes at twice the batch's mean length.",
        algorithm=True,
    )

    n: int = option(
        40, "algorithm", "Batch size: perturbations per update (even).", EVEN, algorithm=True
    )
    sigma: float = option(
        0.05, "algorithm", "Standard deviation of the perturbations.", SCALE, algorithm=True
    )
    lr: float = option(0.1, "algorithm", "Learning rate.", SCALE, algorithm=True)
    lr_decay: float = option(
        1.0, "algorithm", "The learning rate is multiplied by it after each update.",
        SCALE, algorithm=True,
    )  # fmt: skip
    use_adam: bool = option(
        False, "algorithm", "Use Adam instead of SGD.", name="useAdam", algorithm=True
    )
    seed: int | None = option(
        None,
        "algorithm",
        "Seed of everything random. With --test: of the episodes.",
        NOT_NEGATIVE,
        shown="drawn, printed and saved; with --test: the run's evaluation episodes",
        algorithm=True,
    )

    max_gradient_updates: int = option(
        100_000, "ending", "Updates at most, counted from the run's first.", POSITIVE
    )
    max_frames: int | None = option(
        None, "ending", "End after this many training steps.", POSITIVE, shown="no limit"
    )
    max_minutes: float | None = option(
        None, "ending", "End after this many minutes of training.", POSITIVE, shown="no limit"
    )
    target_return: float | None = option(
        None,
        "ending",
        "End as soon as the policy's mean return over --eval-episodes reaches this.",
        shown="none",
    )

    eval_episodes: int = option(20, "evaluation", "Episodes of one evaluation.", POSITIVE)
    eval_every: int | None = option(
        None,
        "evaluation",
        "Evaluate after every so many updates; best.pth then goes by the evaluation.",
        POSITIVE,
        shown="off",
    )

    workers: int | Literal["auto"] | None = option(
        None,
        "run",
        "Worker processes; 'auto' is one per core, 0 plays in this process.",
        WORKERS,
        shown="one per perturbation and one for the unperturbed parameters",
    )
    run_dir: str | None = option(
        None, "run", "Directory of the run.", NOT_EMPTY, shown="checkpoints/<env-name>"
    )
    save_every: int | None = option(
        None, "run", "Also keep update-<K>.pth every so many updates.", POSITIVE, shown="off"
    )
    silent: bool = option(False, "run", "Print nothing but errors and the last line.")
    config: str | None = option(
        None, "run", "TOML file with settings; flags go before it.", shown="none", saved=False
    )
    restore: str = option("", "run", "Checkpoint to start from.", shown="none")
    override: bool = option(False, "run", "Let flags change a restored run's algorithm settings.")

    test: bool = option(
        False, "watching", "Play the restored policy instead of training.", saved=False
    )
    episodes: int | None = option(
        None,
        "watching",
        "Episodes to play with --test.",
        POSITIVE,
        shown="until the window closes; 10 with --no-render",
        saved=False,
    )
    no_render: bool = option(False, "watching", "With --test: open no window.", saved=False)

    def saved(self) -> dict[str, Any]:
        """The settings that belong to the run, as plain types; unset ones are left out."""
        values = {f.name: getattr(self, f.name) for f in FIELDS.values() if f.metadata["saved"]}
        return {name: value for name, value in values.items() if value not in (None, "")}


FIELDS = {field.name: field for field in dataclasses.fields(Config)}
TYPES = typing.get_type_hints(Config)


def flag(name: str) -> str:
    """A field's flag: `lr_decay` -> `--lr-decay`."""
    return "--" + (FIELDS[name].metadata["name"] or name.replace("_", "-"))


def validate(config: Config) -> None:
    """Raises UsageError, naming flag, value and remedy, for the first setting that is wrong."""
    for name, field in FIELDS.items():
        value, check = getattr(config, name), field.metadata["check"]
        if isinstance(value, float) and not math.isfinite(value):
            raise UsageError(f"{flag(name)} {value}: must be a finite number")
        if value is not None and check is not None and not check[0](value):
            raise UsageError(f"{flag(name)} {value!r}: {check[1]}")
    if config.test and not config.restore:
        raise UsageError("--test needs --restore CHECKPOINT, the policy to play")
