#!/usr/bin/env python3
"""The command line: python main.py --help."""

from __future__ import annotations

import signal

if __name__ == "__main__":
    # Until the handlers are installed, Ctrl-C ends the program without a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from es.config import Config, sources
from es.config.validation import validate
from es.errors import UsageError
from es.interrupts import Interrupts
from es.program import execute
from es.rollouts.processes import PRELOAD, limit_threads, start_forkserver

if TYPE_CHECKING:  # worker processes import this file: nothing heavy may come with it
    from es.policy import Restored

# What a checkpoint's parameters are made for.
POLICY = ("hidden_sizes", "activation", "obs_norm", "vbn", "action_bins")


def main(argv: Sequence[str]) -> int:
    """Runs a command line; the result is the exit status."""
    return execute(partial(run, argv))


def run(argv: Sequence[str], interrupts: Interrupts) -> int:
    """Reads settings and checkpoint, then trains or tests; raises RunError."""
    config = sources.parse(argv)
    file: dict[str, Any] = {}
    if config.config is not None:
        file = sources.read_toml(config.config)
        config = sources.parse(argv, file)
    validate(config, combinations=not config.restore)
    limit_threads()
    if config.list_envs is not None:
        from es.environments.catalogue import show

        return show(config.list_envs)
    if not config.test and config.workers != 0 and config.ray is None:
        os.environ[PRELOAD] = config.env_name
        start_forkserver(
            ["es.policy", "es.environments.preload"]
        )  # it imports what workers need while this process does
    if not config.silent and not config.json:
        from es.kernels import compiling

        compiling.notify = partial(print, flush=True)
    if config.test:
        from es import test

        paths = test.snapshots(config.restore)
        loaders = [partial(restore, argv, replace(config, restore=path), file) for path in paths]
        return test.test(loaders, interrupts, several=Path(config.restore).is_dir())
    from es import train

    restored: Restored = None
    if config.restore:
        config, restored = restore(argv, config, file)

    return train.train(config, restored, interrupts)


def restore(argv: Sequence[str], config: Config, file: dict[str, Any]) -> tuple[Config, Restored]:
    """The checkpoint, and the settings with its own below those of the file and the flags.

    Raises UsageError where these contradict the checkpoint's and --override is not given.
    """
    from es.runs.checkpoint import Checkpoint, load

    restored = load(config.restore)
    if not isinstance(restored, Checkpoint):
        validate(config)
        return config, restored
    own = sources.inherited(restored.settings, f"--restore {config.restore}")
    if ":" in own["env_name"] and own["env_name"] != config.env_name:
        raise UsageError(
            f"--restore {config.restore}: plays {own['env_name']}, and would import its module; "
            f"if you know it, give --env-name {own['env_name']}"
        )
    # A run that was silent may well be watched.
    aside = ("restore", "run_dir", "override", *(("silent",) if config.test else ()))
    below = {name: own[name] for name in own if name not in aside}
    if config.use_adam or config.optimizer:  # a choice, for which there are two flags
        below = {name: below[name] for name in below if name not in sources.OPTIMIZER}
    config = replace(sources.parse(argv, below | file), restore=config.restore)
    validate(config)
    if changed := sources.differences(config, own, POLICY):
        raise UsageError(
            f"{'; '.join(changed)}: the policy is made for it; leave it out, or start a new run"
        )
    differing = sources.differences(config, own, ("env_name", "small_net") if config.test else ())
    if differing and not config.override:
        raise UsageError(
            f"{'; '.join(differing)}: leave it out, or give --override to change it on purpose"
        )
    return config, restored


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
