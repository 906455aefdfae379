"""Search for hyperparameters: python sweep.py --help."""

import dataclasses
import importlib.util
import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from es import cli
from es.config import (
    COUNT,
    FIELDS,
    NEEDS,
    NOT_EMPTY,
    SEED,
    Config,
    check_value,
    flag,
    option,
    require_needed,
)
from es.errors import Interrupted, Interrupts, UsageError, command, execute, how_to_install
from es.rollouts.processes import CORES, cores, variables
from es.settings import Parser, combine, read_config

if TYPE_CHECKING:  # Optuna may not be installed
    from optuna.trial import FrozenTrial

    from es.sweeps.study import Sweep


SHIPPED = Path(__file__).resolve().parent / "sweeps" / "sweep.toml"
# What the fork server imports, once for all trials, besides what plays.
FOR_TRIALS = ("es.train", "es.sweeps.trial")
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
    jobs: int | None = sweep(
        None, "Trials at once.", COUNT, shown="one per core; with --workers: 1"
    )
    space: str | None = sweep(None, "TOML file of the search space.", NOT_EMPTY, shown="sweep.toml")
    dir: str | None = sweep(None, "Directory of the sweep.", NOT_EMPTY, shown="sweeps/<env-name>")
    sampler_seed: int | None = sweep(
        None, "Seed of the search, as --seed is of every trial.", SEED, shown="drawn"
    )


def main(argv: Sequence[str]) -> int:
    """Run a command line; return the exit status."""
    return execute(partial(run, argv))


def run(argv: Sequence[str], interrupts: Interrupts) -> int:
    """Search in the sweep's directory and report; return the exit status."""
    sweep = plan(argv)
    from rich.console import Console as RichConsole

    from es.reports.console import Console
    from es.run import open_directory
    from es.sweeps import study

    with open_directory(sweep.directory, "--dir"), study.open_study(sweep) as found:
        console = Console(silent=sweep.base.silent)

        def tell(trial: "FrozenTrial") -> None:
            study.write_tables(found, sweep)
            console.say(study.describe_trial(trial, study.best_trial(found)))

        interrupts.defer()
        try:
            with RichConsole(quiet=sweep.base.silent).status("") as status:  # on a terminal alone
                study.search(found, sweep, interrupts, tell, status.update)
        except Interrupted as interrupted:
            console.close(
                f"Interrupted: {len(study.done_trials(found))} of {sweep.total} trials are done. "
                f"Go on with the same command:\n  {command('sweep', *argv)}"
            )
            return interrupted.status
        console.close(study.conclude(found, sweep, console))
        return 0


def plan(argv: Sequence[str]) -> "Sweep":
    """Return what a command line asks for; nothing on disk is changed. Raise UsageError."""
    flags, base, given = read_flags(argv)
    if importlib.util.find_spec("optuna") is None:
        remedy = how_to_install("tune", "requirements-extra.txt")
        raise UsageError(f"a sweep needs Optuna: {remedy}")
    jobs = flags.jobs or (cores() if base.workers == 0 else 1)
    with variables({CORES: str(max(1, cores() // jobs))}):  # how many a trial's master uses
        cli.prepare(base, preload=FOR_TRIALS)
    from es.policy import make_policy
    from es.run import default_path
    from es.sweeps.space import fit_space, read_space
    from es.sweeps.study import Sweep

    source = f"--space {flags.space}" if flags.space else SHIPPED.name
    space = read_space(flags.space or str(SHIPPED), source)
    policy = make_policy(base, None)
    changed = {name for table in base.phase for name in table}
    alone = {name: space[name] for name in space if NEEDS.get(name) not in space}
    require_needed(alone, base, f"{source}: ")
    space = fit_space(space, given | changed, policy.network["kind"])
    if not space:
        raise UsageError(f"{source}: nothing is left to search. Flags or phases fix every setting")
    directory = Path(flags.dir) if flags.dir else default_path("sweeps", base.env_name)
    return Sweep(
        base, space, directory, flags.trials, jobs, flags.sampler_seed, drawable=policy.drawable
    )


def read_flags(argv: Sequence[str]) -> tuple[SweepFlags, Config, set[str]]:
    """Return the sweep's flags, the settings of all trials, and which of them were given as flags.

    Raise UsageError if one is wrong, or makes no sense for many runs.
    """
    fields = {field.name: field for field in dataclasses.fields(SweepFlags)}
    parser = Parser("sweep", inspect.getdoc(SweepFlags) or "")
    parser.add_fields(SweepFlags)
    parser.add_fields(Config, hidden=True)
    given = parser.read(argv)
    flags = SweepFlags(**{name: given.pop(name) for name in fields if name in given})
    for name, field in fields.items():
        check_value(flag(name), getattr(flags, name), field.metadata["check"])
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
    shared = {name: value for name, value in file.items() if name not in (*REFUSED, "workers")}
    return flags, combine(given, shared, {"workers": 0}), {*given}
