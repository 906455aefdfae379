"""Search for hyperparameters: python sweep.py --help."""

from __future__ import annotations

import signal

if __name__ == "__main__":
    # Until the handlers are installed, Ctrl-C ends the program without a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

import contextlib
import dataclasses
import importlib.util
import inspect
import os
import sys
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from es.config import Config, flag, sources
from es.config.flags import argument, read
from es.config.option import COUNT, NOT_EMPTY, NOT_NEGATIVE, POSITIVE, option
from es.config.validation import require, validate
from es.errors import UsageError
from es.interrupts import Interrupted, Interrupts
from es.program import execute
from es.rollouts.processes import CORES, PRELOAD, cores, limit_threads, start_forkserver, variables
from es.sweeps.space import fitted, read_space

if TYPE_CHECKING:  # trials import this file: nothing heavy may come with it
    from optuna.trial import FrozenTrial

    from es.sweeps.study import Sweep


SHIPPED = Path(__file__).resolve().parent / "sweeps" / "sweep.toml"
BUDGETS = ("max_frames", "max_minutes", "max_gradient_updates")
# Settings of the trainer that make no sense for many runs.
REFUSED = (
    "restore", "override", "run_dir", "ray", "wandb", "test", "episodes", "no_render", "video",
    "json", "stochastic_start", "list_envs", "save_every", "video_every",
)  # fmt: skip
own = partial(option, group="sweep", saved=False)


def _spelled(name: str) -> str:
    return "--" + name.replace("_", "-")


@dataclass(frozen=True)
class Flags:
    """Search for the hyperparameters with the highest return in a budget.

    All other flags are the trainer's (python main.py --help) and hold for all trials; a budget,
    such as --max-frames, must be among them. The same command again goes on.
    """

    trials: int = own(30, help="Trials in all, with those that are done already.", check=COUNT)
    jobs: int | None = own(
        None, help="Trials at once.", check=POSITIVE, shown="as many as there are cores"
    )
    space: str | None = own(
        None, help="TOML file of what is searched.", check=NOT_EMPTY, shown="sweep.toml"
    )
    dir: str | None = own(
        None, help="Directory of the sweep.", check=NOT_EMPTY, shown="sweeps/<env-name>"
    )
    sampler_seed: int | None = own(
        None, help="Seed of the search, as --seed is of every trial.", check=NOT_NEGATIVE,
        shown="drawn",
    )  # fmt: skip


def main(argv: Sequence[str]) -> int:
    """Runs a command line; the result is the exit status."""
    return execute(partial(run, argv))


def run(argv: Sequence[str], interrupts: Interrupts) -> int:
    """Searches in the sweep's directory and reports; the result is the exit status."""
    sweep = prepare(argv)
    from rich.console import Console as RichConsole
    from rich.text import Text

    from es.program import command
    from es.reports.terminal import Terminal
    from es.runs.directory import open_existing, writable
    from es.sweeps import report, study

    with contextlib.ExitStack() as stack:
        stack.callback(open_existing(sweep.directory, "--dir").close)
        found = stack.enter_context(study.opened(sweep))
        console = Terminal(silent=sweep.base.silent)
        stack.callback(console.close)
        with writable(sweep.directory, "--dir"):
            moved = report.move_older(found, sweep)
        if moved:
            names = ", ".join(map(str, moved))
            console.say(f"{sweep.directory} held other results: they are now {names}.")

        def tell(trial: FrozenTrial) -> None:
            report.write_tables(found, sweep)
            console.say(report.line(trial, study.best_of(found)))

        interrupts.defer()
        try:
            with RichConsole(quiet=sweep.base.silent).status("") as status:  # on a terminal alone
                study.search(found, sweep, lambda line: status.update(Text(line)), interrupts, tell)
        except Interrupted as interrupted:
            done = sum(map(study.is_done, found.get_trials(deepcopy=False)))
            console.close(
                f"Interrupted: {done} of {sweep.total} trials are done. "
                f"Go on with the same command: {command('sweep', *argv)}"
            )
            return interrupted.status
        console.close(report.conclude(found, sweep, console))
        return 0


def prepare(argv: Sequence[str]) -> Sweep:
    """What a command line asks for, checked; nothing on disk is changed. Raises UsageError."""
    flags, rest = read_flags(argv)
    base, given = read_base(rest)
    if importlib.util.find_spec("optuna") is None:
        raise UsageError("sweep.py needs Optuna: pip install -r requirements-extra.txt")
    source = f"--space {flags.space}" if flags.space else SHIPPED.name
    space = read_space(flags.space or str(SHIPPED), source)
    limit_threads()
    processes = _processes(base)
    jobs = flags.jobs or max(1, cores() // processes)
    if flags.jobs and jobs * processes > cores():
        print(
            f"warning: --jobs {jobs}: {jobs * processes} processes at once are more than the "
            f"{cores()} cores, and slow each other down",
            file=sys.stderr,
        )
    os.environ[PRELOAD] = base.env_name
    with variables({CORES: str(max(1, cores() // jobs))}):  # of which a trial's master uses as many
        start_forkserver(["es.sweeps.preload"])  # beside this process's own imports
    from es.policy import describe
    from es.sweeps.study import Sweep

    if describe(base, None)[0].network["kind"] == "mlp":
        base = dataclasses.replace(base, small_net=True)
    space = fitted(
        space, base, given, partial(describe, restored=None), source, shipped=not flags.space
    )
    if not space:
        raise UsageError(f"{source}: nothing is left to search, as all is given as flags")
    directory = Path(flags.dir or Path("sweeps") / base.env_name)
    return Sweep(base, space, directory, flags.trials, jobs, flags.sampler_seed)


def _processes(config: Config) -> int:
    """How many play in a trial at once."""
    if config.workers is None:  # one per perturbation and one for the unperturbed parameters
        return config.n + 1
    return cores() if config.workers == "auto" else max(1, config.workers)


def read_flags(argv: Sequence[str]) -> tuple[Flags, list[str]]:
    """Return the sweep's own flags, and the rest of the command line; raise UsageError."""
    kind = dataclasses.make_dataclass("Flags", _arguments(), frozen=True)
    description = inspect.getdoc(Flags)
    parsed, rest = read(kind, argv, "sweep.py", description=description, return_unknown_args=True)
    flags = Flags(**vars(parsed))
    for field in dataclasses.fields(Flags):
        require(_spelled(field.name), getattr(flags, field.name), field.metadata["check"])
    return flags, rest


def _arguments() -> list[tuple[str, Any, Any]]:
    types = typing.get_type_hints(Flags)
    return [
        argument(field, types[field.name], field.default) for field in dataclasses.fields(Flags)
    ]


def read_base(rest: Sequence[str]) -> tuple[Config, set[str]]:
    """The settings that hold for all trials, and the fields that were given as flags.

    rest: what of the command line is the trainer's. Raises UsageError where they are wrong, or
    make no sense for many runs.
    """
    config = sources.parse(rest, others=_arguments())  # one of which may be misspelled
    file: dict[str, Any] = {}
    if config.config is not None:
        file = sources.read_toml(config.config)
        config = sources.parse(rest, file)
    given = sources.given(rest)
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
    if workers == 0 and "rollout_timeout" in given:
        raise UsageError(
            f"--rollout-timeout {config.rollout_timeout}: is for worker processes; give --workers, "
            "too"
        )
    # What a file says of a single run is not the trials'.
    config = dataclasses.replace(
        config,
        workers=workers,
        rollout_timeout=None if workers == 0 else config.rollout_timeout,
        override=False,
        run_dir=None,
        save_every=None,
        video_every=None,
    )
    validate(config)
    if config.use_adam or not config.optimizer:  # one way to choose it, which the space knows
        config = dataclasses.replace(
            config, use_adam=False, optimizer="adam" if config.use_adam else "sgd"
        )
    return config, given


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
