"""A trial's process: it plays the trial, and leaves the output and the outcome in files."""

import gc
import json
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from es.errors import Interrupts, execute, naming_limits, summary_of
from es.reports import NO_CURVE
from es.rollouts.processes import TERMINAL_SIGNALS, end_group, end_with_parent
from es.run import write_text

TRIAL_SETTINGS, OUTPUT, OUTCOME = "trial.toml", "output.txt", "outcome.json"
# Trains with the settings in a directory, and returns {"value": ..., "frames": ...}; raises
# RunError if it fails, and SystemExit if it is interrupted.
Play = Callable[[Path, Interrupts], dict[str, float]]


def run_trial(play: Play, directory: Path) -> None:
    """Run a trial's process, which leaves what `play` returns, or {"error": ...}, in OUTCOME."""
    gc.freeze()  # to look through what was imported would copy the pages that trials share
    os.setsid()  # the terminal's Ctrl-C is for the sweep, which then interrupts its trials
    for number in TERMINAL_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    os.environ[NO_CURVE] = "yes"  # trials are compared by their values
    with (directory / OUTPUT).open("ab") as output:
        for stream in (1, 2):
            os.dup2(output.fileno(), stream)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, TERMINAL_SIGNALS)
    sys.exit(execute(partial(_play, play, directory)))


def _play(play: Play, directory: Path, interrupts: Interrupts) -> int:
    try:
        with naming_limits():
            end_with_parent(partial(end_group, os.getpid()))
            outcome = play(directory, interrupts)
    except Exception as error:
        write_text(directory / OUTCOME, json.dumps({"error": summary_of(error)}))
        raise
    write_text(directory / OUTCOME, json.dumps(outcome))
    return 0
