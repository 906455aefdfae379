"""The flags of sweep.py: its own, and the trainer's, which hold for all trials."""

import dataclasses
import inspect
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from es.config import COUNT, FIELDS, NOT_EMPTY, SEED, TYPES, Config, check_value, flag, option
from es.errors import UsageError
from es.settings import Parser, combine, read_config

BUDGETS = ("max_frames", "max_minutes", "max_gradient_updates")
# Settings of the trainer that make no sense for many runs.
REFUSED = (
    "restore", "override", "trust", "run_dir", "ray", "ray_timeout", "wandb", "save_every",
    "video_every", "log_every",
    *(name for name, field in FIELDS.items() if field.metadata["group"] == "watching"),
)  # fmt: skip
sweep = partial(option, group="sweep", saved=False)


@dataclass(frozen=True)
class SweepFlags:
    """Search for the hyperparameters with the highest return in a budget.

    All other flags are the trainer's (python main.py --help) and hold for all trials. A budget,
    such as --max-frames, must be among them. The same command again continues the sweep.
    """

    trials: int = sweep(30, "Trials in all, with those that are done already.", COUNT)
    jobs: int | None = sweep(None, "Trials at once.", COUNT, shown="as many as there are cores")
    space: str | None = sweep(None, "TOML file of the search space.", NOT_EMPTY, shown="sweep.toml")
    dir: str | None = sweep(None, "Directory of the sweep.", NOT_EMPTY, shown="sweeps/<env-name>")
    sampler_seed: int | None = sweep(
        None, "Seed of the search, as --seed is of every trial.", SEED, shown="drawn"
    )


def read_flags(argv: Sequence[str]) -> tuple[SweepFlags, Config, set[str]]:
    """Return the sweep's flags, the settings of all trials, and which of them were given as flags.

    Raise UsageError if one is wrong, or makes no sense for many runs.
    """
    fields = {field.name: field for field in dataclasses.fields(SweepFlags)}
    kinds = typing.get_type_hints(SweepFlags)
    parser = Parser("sweep", inspect.getdoc(SweepFlags) or "")
    parser.add_fields(fields.values(), kinds)
    parser.add_fields(FIELDS.values(), TYPES, hidden=True)
    given = parser.read(argv, TYPES | kinds)
    flags = SweepFlags(**{name: given.pop(name) for name in fields if name in given})
    for name, field in fields.items():
        place = f"--{name.replace('_', '-')}"
        check_value(place, getattr(flags, name), field.metadata["check"])
    for name in REFUSED:
        if name in given:
            raise UsageError(f"{flag(name)} applies only to a single run. Remove it")
    file = read_config(given)
    if file.get("restore"):
        raise UsageError(f"--config {given['config']} starts from another run. Remove its restore")
    if not {*given, *file}.intersection(BUDGETS):
        raise UsageError(
            "a trial needs a budget: give --max-frames, --max-minutes or --max-gradient-updates"
        )
    # A file's settings of a single run are not those of a trial.
    one_run = {"workers", "run_dir", "save_every", "video_every", "override", "restore"}
    shared = {name: value for name, value in file.items() if name not in one_run}
    config = combine({"workers": 0, **given}, shared)
    # There is one way to choose the optimiser.
    config = dataclasses.replace(config, use_adam=False, optimizer=config.optimizer_name)
    return flags, config, {"optimizer" if name == "use_adam" else name for name in given}
