"""The program `es`, or `python -m es`: the trainer, `es compare` and `es sweep`."""

import sys

if not sys.flags.safe_path:
    del sys.path[0]  # the script's folder, or the one it is started in, which is searched last

import signal
from typing import NoReturn

signal.signal(signal.SIGINT, signal.SIG_DFL)  # until it is handled: no traceback

from es.program import hide_doors, leave


def run() -> NoReturn:
    """Run the command line, and end."""
    hide_doors()
    words = sys.argv[1:]
    if words[:1] == ["compare"]:
        from es.compare import main as compare

        leave(compare(words[1:]))
    if words[:1] == ["sweep"]:
        from es.sweep import main as sweep

        leave(sweep(words[1:]))
    from es.main import main

    leave(main(words))


if __name__ == "__main__":
    run()
