"""The command line: python main.py --help."""

import gc
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from es import __version__
from es.config import Config, sources
from es.config.validation import validate
from es.interrupts import Interrupts
from es.program import execute, modules_for_workers, search_last
from es.reports import NO_CURVE, one_shot
from es.reports.first_line import default_environment, first_line
from es.rollouts.processes import PRELOAD, limit_threads, start_forkserver

if TYPE_CHECKING:  # worker processes import this file, so it must import nothing heavy
    from es.runs.restored import Restored


def main(argv: Sequence[str]) -> int:
    """Run a command line; return the exit status."""
    gc.set_threshold(100_000)  # the import of torch alone collects 374 times else
    return execute(partial(run, argv))


def run(argv: Sequence[str], interrupts: Interrupts) -> int:
    """Read settings and checkpoint, then train, test or export; raise RunError."""
    flags = sources.read_flags(argv)
    if flags.get("version"):
        print(f"es {__version__}")
        return 0
    file = sources.read_config(flags)
    config = sources.combine(flags, file)
    validate(config, combinations=not config.restore)
    limit_threads()
    search_last(config.list_envs or config.imported)
    if config.list_envs is not None:
        from es.config.shipped import tuned_settings
        from es.environments.catalogue import show
        from es.envs import describe_env, make_env

        return show(config.list_envs, lambda name: make_env(describe_env(name)), tuned_settings())
    loud = not config.silent and not config.json
    if not config.restore:
        _prepare_workers(config)
    if not config.instead and not os.environ.get(NO_CURVE):
        with suppress(OSError):  # then the picture is drawn later
            one_shot.prepare("matplotlib.figure", "matplotlib.backends.backend_agg")
    if not config.restore:
        from es.envs import require_env

        require_env(config.env_name)
    if loud:
        with suppress(OSError):  # the run's console tells if its line is lost
            if not config.restore and "env_name" not in {*file, *flags}:
                print(default_environment(config))
            print(first_line(config), flush=True)  # before torch is imported, which takes seconds
    from es.runs.restored import checkpoints_in, restore

    parse = partial(sources.combine, flags, file)
    if config.test:
        from es import test

        paths = checkpoints_in(config.restore)
        loaders = [partial(restore, parse, replace(config, restore=path), argv) for path in paths]
        return test.test(loaders, interrupts, several=os.path.isdir(config.restore))
    restored: Restored = None
    if config.restore:
        config, restored = restore(parse, config, argv)
        _prepare_workers(config)  # the checkpoint names the environment
    if config.export:
        from es import export

        return export.export(config, restored, interrupts)
    from es import train

    return train.train(config, restored, interrupts).status


def _prepare_workers(config: Config) -> None:
    """Start the process that workers are forked from, if the run has workers on this machine.

    It imports the simulator and other modules for them while this process does other things.
    """
    if not config.instead and config.workers != 0 and config.ray is None:
        os.environ[PRELOAD] = config.env_name
        start_forkserver(modules_for_workers(config.net))
