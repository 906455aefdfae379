"""The command line: python main.py --help."""

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from es.config import sources
from es.config.validation import validate
from es.interrupts import Interrupts
from es.program import FOR_WORKERS, execute
from es.rollouts.processes import PRELOAD, limit_threads, start_forkserver

if TYPE_CHECKING:  # worker processes import this file, so it must import nothing heavy
    from es.runs.restored import Restored


def main(argv: Sequence[str]) -> int:
    """Run a command line; return the exit status."""
    return execute(partial(run, argv))


def run(argv: Sequence[str], interrupts: Interrupts) -> int:
    """Read settings and checkpoint, then train or test; raise RunError."""
    config = sources.parse(argv)
    file: dict[str, Any] = {}
    if config.config is not None:
        file = sources.read_toml(config.config)
        config = sources.parse(argv, file)
    validate(config, combinations=not config.restore)
    limit_threads()
    if config.list_envs is not None:
        from es.config.shipped import tuned_settings
        from es.environments.catalogue import show
        from es.envs import describe_env, make_env

        return show(config.list_envs, lambda name: make_env(describe_env(name)), tuned_settings())
    if not config.test and config.workers != 0 and config.ray is None:
        os.environ[PRELOAD] = config.env_name
        start_forkserver(FOR_WORKERS)  # it imports them while this process imports the same
    if not config.silent and not config.json:
        from es.kernels import compiling

        compiling.notify = partial(print, flush=True)
    from es.runs.restored import checkpoints_in, restore

    if config.test:
        from es import test

        paths = checkpoints_in(config.restore)
        loaders = [partial(restore, argv, replace(config, restore=path), file) for path in paths]
        return test.test(loaders, interrupts, several=Path(config.restore).is_dir())
    from es import train

    restored: Restored = None
    if config.restore:
        config, restored = restore(argv, config, file)
    return train.train(config, restored, interrupts)
