"""The command line: python main.py --help."""

import gc
import os
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from es import __version__, settings
from es.checkpoint import Checkpoint, find_all
from es.config import Config
from es.errors import Interrupts, execute, in_one_line
from es.rollouts.processes import (
    PRELOAD,
    limit_threads,
    modules_for_workers,
    search_last,
    start_forkserver,
)


def main(argv: Sequence[str]) -> int:
    """Run a command line; return the exit status."""
    gc.set_threshold(100_000)  # else importing torch alone triggers 374 collections
    return execute(partial(run, argv))


def run(argv: Sequence[str], interrupts: Interrupts) -> int:
    """Resolve the settings, then train, test or export; raise RunError."""
    limit_threads()  # before a checkpoint is loaded, which imports torch
    given = settings.from_argv(argv)
    if given.get("version"):
        print(f"es {__version__}")
        return 0
    if (words := given.get("list_envs")) is not None:
        if words:  # one may be a module in the current folder
            search_last()
        from es.environments.listing import show

        return show(words, settings.tuned_settings())
    file = settings.read_config(given)
    chosen = {**file, **given}
    loud = not chosen.get("silent") and not chosen.get("json")
    restore = chosen.get("restore")
    if restore and loud:
        _say(f"Loading {restore} ...")  # before torch is imported, which takes seconds
    if restore and given.get("test"):
        from es import test

        paths = find_all(restore)
        loaders = [partial(_resolve, {**given, "restore": path}, file) for path in paths]
        return test.test(loaders, interrupts, several=os.path.isdir(restore))
    config, checkpoint = _resolve(given, file)
    if not restore:
        from es.envs import find_env

        find_env(config.env_name)
        if loud:
            if "env_name" not in chosen:
                _say(
                    f"No --env-name given: training {config.env_name}, which takes hours. "
                    "Try --env-name CartPole-v1."
                )
            _say(f"Training {config.env_name} ...")
    if config.export:
        from es import export

        export.export(config, checkpoint)
        return 0
    from es import train

    return train.train(config, checkpoint, interrupts).status


def prepare(config: Config, *, preload: Sequence[str] = ()) -> None:
    """Limit threads, and start the fork server if a training needs it.

    It imports the modules of the workers, the simulator and `preload` while this process goes on.
    """
    limit_threads()
    if config.user_modules:
        search_last()
    if config.mode == "train" and config.ray is None and (config.workers != 0 or preload):
        os.environ[PRELOAD] = config.env_name
        start_forkserver([*modules_for_workers(config.net), *preload])


def _resolve(given: dict[str, Any], file: dict[str, Any]) -> tuple[Config, Checkpoint | None]:
    config, checkpoint = settings.resolve(given, file)
    prepare(config)
    return config, checkpoint


def _say(line: str) -> None:
    with suppress(OSError):  # the run's console tells if its output is lost
        print(in_one_line(line), flush=True)
