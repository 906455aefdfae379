"""The command line: python main.py --help."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from es.config import Config, sources
from es.errors import RunError, UsageError
from es.interrupts import Interrupted, Interrupts
from es.workers.processes import limit_threads, start_forkserver

if TYPE_CHECKING:  # worker processes import this file: nothing heavy may come with it
    from game import Restored


def main(argv: Sequence[str]) -> int:
    """Runs a command line; the result is the exit status."""
    try:
        with Interrupts() as interrupts:
            return run(argv, interrupts)
    except RunError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.status
    except Interrupted as interrupted:
        return interrupted.status
    except BrokenPipeError:  # as in `| head`: nobody is left to read, not even the last line
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def run(argv: Sequence[str], interrupts: Interrupts) -> int:
    """Reads settings and checkpoint, then trains or tests; raises RunError and Interrupted."""
    config = sources.parse(argv)
    file = sources.read_toml(config.config) if config.config else {}
    if file:
        config = sources.parse(argv, file)
    limit_threads()
    if not config.test and config.workers != 0:
        start_forkserver(["game"])  # it imports what workers need while this process does
    restored: Restored = None
    if config.restore:
        config, restored = restore(argv, config, file)
    if config.test:
        import test

        return test.test(config, restored)
    import train

    return train.train(config, restored, interrupts)


def restore(argv: Sequence[str], config: Config, file: dict[str, Any]) -> tuple[Config, Restored]:
    """The checkpoint, and the settings with its own below those of the file and the flags.

    Raises UsageError where these contradict the checkpoint's and --override is not given.
    """
    from es.checkpoint import Checkpoint, load

    restored = load(config.restore)
    if not isinstance(restored, Checkpoint):
        return config, restored
    own = sources.from_mapping(restored.settings, f"--restore {config.restore}")
    inherited = {name: own[name] for name in own if name not in ("restore", "run_dir")}
    config = sources.parse(argv, inherited | file)
    names = ("env_name", "small_net") if config.test else ()
    differing = sources.differences(config, own, names)
    if differing and not config.override:
        raise UsageError(
            f"{'; '.join(differing)}: leave it out, or give --override to change it on purpose"
        )
    return config, restored


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
