"""Search for hyperparameters: python sweep.py --help."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from es import cli
from es.errors import Interrupted, Interrupts, UsageError, command, execute, how_to_install
from es.rollouts.processes import CORES, cores, variables
from es.sweeps.flags import read_flags

if TYPE_CHECKING:  # trials import this file: nothing heavy may come with it
    from optuna.trial import FrozenTrial

    from es.config import Config
    from es.sweeps.study import Sweep


SHIPPED = Path(__file__).resolve().parent / "sweeps" / "sweep.toml"
# What the fork server imports, once for all trials, besides what plays.
FOR_TRIALS = ("es.sweep", "es.train", "es.sweeps.trial")
FREE_SECONDS = 10.0


def main(argv: Sequence[str]) -> int:
    """Run a command line; return the exit status."""
    return execute(partial(run, argv))


def run(argv: Sequence[str], interrupts: Interrupts) -> int:
    """Search in the sweep's directory and report; return the exit status."""
    sweep = prepare(argv)
    from rich.console import Console as RichConsole

    from es.reports.terminal import Terminal
    from es.run import open_directory
    from es.sweeps import report, study

    with contextlib.ExitStack() as stack:
        stack.callback(open_directory(sweep.directory, "--dir").close)
        report.require_no_results(sweep.directory)
        found = stack.enter_context(study.open_study(sweep))
        console = Terminal(silent=sweep.base.silent)
        stack.callback(console.close)

        def tell(trial: FrozenTrial) -> None:
            report.write_tables(found, sweep)
            console.say(report.describe_trial(trial, study.best_trial(found)))

        interrupts.defer()
        try:
            with RichConsole(quiet=sweep.base.silent).status("") as status:  # on a terminal alone
                study.search(found, sweep, play_trial, interrupts, tell, status.update)
        except Interrupted as interrupted:
            console.close(
                f"Interrupted: {len(study.done_trials(found))} of {sweep.total} trials are done. "
                f"Go on with the same command:\n  {command('sweep', *argv)}"
            )
            return interrupted.status
        console.close(report.conclude(found, sweep, console))
        return 0


def play_trial(directory: Path, interrupts: Interrupts) -> dict[str, float]:
    """Train as main.py does, with the settings of a trial, in its process; return its value.

    That is the mean return of its last policy in the episodes of its own evaluation, which --test
    plays, too. A trial that has a checkpoint continues from there. Raises RunError if the training
    fails, and SystemExit if it is interrupted.
    """
    from es.checkpoint import LATEST, load
    from es.policy import make_policy
    from es.sweeps.trial import TRIAL_SETTINGS

    settings = ["--config", str(directory / TRIAL_SETTINGS), "--run-dir", str(directory)]
    latest = directory / LATEST
    if latest.exists():
        settings += ["--restore", str(latest)]
        _wait_until_free(directory)
    status = cli.run(settings, interrupts)
    if status > 128:  # 1 if it has only missed its target
        sys.exit(status)
    checkpoint = load(str(latest))
    assert checkpoint.config is not None
    mean, std = make_policy(checkpoint.config, checkpoint).evaluate()
    return {"value": mean, "std": std, "frames": checkpoint.counters.frames}


def _wait_until_free(directory: Path) -> None:
    """Wait for the process of a killed sweep that still plays this trial: it ends by itself."""
    from es.run import InUseError, open_directory

    deadline = time.monotonic() + FREE_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(InUseError):
            open_directory(directory).close()
            return
        time.sleep(0.1)


def prepare(argv: Sequence[str]) -> Sweep:
    """Return what a command line asks for; nothing on disk is changed. Raise UsageError."""
    flags, base, given = read_flags(argv)
    if importlib.util.find_spec("optuna") is None:
        remedy = how_to_install("tune", "requirements-extra.txt")
        raise UsageError(f"sweep.py needs Optuna: {remedy}")
    processes = _processes(base)
    jobs = flags.jobs or max(1, cores() // processes)
    with variables({CORES: str(max(1, cores() // jobs))}):  # of which a trial's master uses as many
        cli.prepare(base, preload=FOR_TRIALS, picture=False)
    from es.policy import make_policy
    from es.run import default_path
    from es.sweeps.space import fit_space, read_space
    from es.sweeps.study import Sweep

    source = f"--space {flags.space}" if flags.space else SHIPPED.name
    space = read_space(flags.space or str(SHIPPED), source)
    policy = make_policy(base, None)
    base = policy.config
    describes = partial(make_policy, checkpoint=None)
    space = fit_space(space, base, given, describes, source, shipped=not flags.space)
    if not space:
        raise UsageError(f"{source}: nothing is left to search, as all is given as flags")
    if flags.jobs and jobs * processes > cores():
        print(
            f"warning: --jobs {jobs}: {jobs * processes} processes at once are more than the "
            f"{cores()} cores, and slow each other down",
            file=sys.stderr,
        )
    directory = Path(flags.dir) if flags.dir else default_path("sweeps", base.env_name)
    return Sweep(
        base, space, directory, flags.trials, jobs, flags.sampler_seed, drawable=policy.drawable
    )


def _processes(config: Config) -> int:
    """Return how many processes play in a trial at once."""
    if config.workers is None:  # one per perturbation and one for the unperturbed parameters
        return config.n + 1
    return cores() if config.workers == "auto" else max(1, config.workers)
