"""The program `es`, or `python -m es`: the trainer, `es compare` and `es sweep`."""

import sys


def run(tool: str = "", *words: str) -> None:
    """Run a tool (main, compare, sweep) with the command line, and end the process.

    tool: by default, the first argument names it. words: stand before the command line's own.
    """
    if not sys.flags.safe_path:
        del sys.path[0]  # the script's folder or the current one, where a random.py may lie
    import signal

    signal.signal(signal.SIGINT, signal.SIG_DFL)  # until it is handled: no traceback
    from es.rollouts.processes import hide_checkout, leave

    hide_checkout()
    argv = [*words, *sys.argv[1:]]
    if not tool:
        tool = argv.pop(0) if argv[:1] in (["compare"], ["sweep"]) else "main"
    if tool == "compare":
        from es.compare import main
    elif tool == "sweep":
        from es.sweep import main
    else:
        from es.cli import main
    leave(main(argv))


if __name__ == "__main__":
    run()
