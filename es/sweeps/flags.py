"""The flags of sweep.py: its own, and the trainer's, which hold for all trials."""

import dataclasses
import inspect
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from es.config import FIELDS, Config, flag, sources
from es.config.flags import argument, read
from es.config.option import COUNT, NOT_EMPTY, SEED, option
from es.config.validation import require, validate
from es.errors import UsageError

BUDGETS = ("max_frames", "max_minutes", "max_gradient_updates")
# Settings of the trainer that make no sense for many runs.
REFUSED = (
    "restore", "override", "run_dir", "ray", "ray_timeout", "wandb", "save_every", "video_every",
    "log_every", *(name for name, field in FIELDS.items() if field.metadata["group"] == "watching"),
)  # fmt: skip
own = partial(option, group="sweep", saved=False)


@dataclass(frozen=True)
class SweepFlags:
    """Search for the hyperparameters with the highest return in a budget.

    All other flags are the trainer's (python main.py --help) and hold for all trials; a budget,
    such as --max-frames, must be among them. The same command again goes on.
    """

    trials: int = own(30, help="Trials in all, with those that are done already.", check=COUNT)
    jobs: int | None = own(
        None, help="Trials at once.", check=COUNT, shown="as many as there are cores"
    )
    space: str | None = own(
        None, help="TOML file of what is searched.", check=NOT_EMPTY, shown="sweep.toml"
    )
    dir: str | None = own(
        None, help="Directory of the sweep.", check=NOT_EMPTY, shown="sweeps/<env-name>"
    )
    sampler_seed: int | None = own(
        None, help="Seed of the search, as --seed is of every trial.", check=SEED,
        shown="drawn",
    )  # fmt: skip


def read_flags(argv: Sequence[str]) -> tuple[SweepFlags, list[str]]:
    """Return the sweep's own flags, and the rest of the command line; raise UsageError."""
    kind = dataclasses.make_dataclass("Flags", _arguments(), frozen=True)
    help_text = inspect.getdoc(SweepFlags)
    parsed, rest = read(kind, argv, "sweep", description=help_text, return_unknown_args=True)
    flags = SweepFlags(**vars(parsed))
    for field in dataclasses.fields(SweepFlags):
        name = "--" + field.name.replace("_", "-")
        require(name, getattr(flags, field.name), field.metadata["check"])
    return flags, rest


def _arguments() -> list[tuple[str, Any, Any]]:
    types = typing.get_type_hints(SweepFlags)
    fields = dataclasses.fields(SweepFlags)
    return [argument(field, types[field.name], field.default) for field in fields]


def read_base(rest: Sequence[str]) -> tuple[Config, set[str]]:
    """Return the settings that hold for all trials, and the fields that were given as flags.

    rest: the part of the command line that is the trainer's. Raises UsageError if the settings are
    wrong, or make no sense for many runs.
    """
    flags = sources.read_flags(rest, others=_arguments())  # one of which may be misspelled
    given = {*flags}
    file = sources.read_config(flags)
    config = sources.combine(flags, file)
    for name in REFUSED:
        if name in given:
            raise UsageError(f"{flag(name)}: is for a single run; leave it out")
    if config.restore:
        raise UsageError(
            f"--config {config.config}: goes on from another run; leave its restore out"
        )
    if not given.union(file).intersection(BUDGETS):
        raise UsageError(
            "a trial needs a budget: give --max-frames, --max-minutes or --max-gradient-updates"
        )
    workers = config.workers if "workers" in given else 0
    timed = workers != 0 or "rollout_timeout" in given
    # What a file says of a single run is not the trials'. There is one way to choose the optimiser.
    config = dataclasses.replace(
        config,
        workers=workers,
        rollout_timeout=config.rollout_timeout if timed else None,
        override=False,
        run_dir=None,
        save_every=None,
        video_every=None,
    )
    validate(config)
    optimizer: Any = config.optimizer_name
    given |= {"optimizer"} if "use_adam" in given else set()
    return dataclasses.replace(config, use_adam=False, optimizer=optimizer), given
