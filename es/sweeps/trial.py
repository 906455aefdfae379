"""A trial's process: trains as main.py does, then plays what came of it, and leaves its value."""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import traceback
from contextlib import closing
from pathlib import Path
from typing import Any

from es.algorithm.population import mean_and_std
from es.runs.checkpoint import Checkpoint, load
from es.errors import RunError
from es.reports.learning_curve import NO_CURVE
from es.rollouts.rollout import Snapshot, evaluation_tasks
from es.runs.directory import LATEST, write_text
from es.rollouts.in_process import InProcessPool
from es.rollouts.processes import TERMINAL_SIGNALS, end_with_parent
from es.policy import describe
from es.runs.restored import restored_normalizer, settings_of
from es.main import main

SETTINGS, OUTPUT, OUTCOME = "trial.toml", "output.txt", "outcome.json"


def play(directory: Path) -> None:
    """The life of a trial's process, whose settings lie in the directory.

    Leaves its outcome there: {"value", "std", "frames"}, or {"error"}; none if it is interrupted.
    """
    gc.freeze()  # to look through what was imported would copy the pages that trials share
    os.setsid()  # the terminal's Ctrl-C is for the sweep, which then interrupts its trials
    for number in TERMINAL_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    end_with_parent()
    os.environ[NO_CURVE] = "yes"  # trials are compared by their values
    sys.argv[0] = os.path.join(
        os.path.dirname(sys.argv[0]), "main.py"
    )  # for commands that it names
    _redirect(directory / OUTPUT)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, TERMINAL_SIGNALS)
    try:
        status = main(["--config", str(directory / SETTINGS), "--run-dir", str(directory)])
        if status > 2:
            sys.exit(status)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # all that is left is to tell its value
        outcome = _failure(directory) if status else None
        outcome = outcome or score(directory / LATEST)
    except RunError as error:
        outcome = {"error": _in_brief(str(error))}
    except Exception as error:
        traceback.print_exc()
        outcome = {"error": f"{type(error).__name__}: {error}"}
    write_text(directory / OUTCOME, json.dumps(outcome))


def score(path: Path) -> dict[str, Any]:
    """Mean and standard deviation of a checkpoint's returns in fresh episodes, and its frames.

    The episodes are those of the run's own evaluations, which --test plays, too.
    """
    ours = load(str(path))
    assert isinstance(ours, Checkpoint)
    config = settings_of(ours)
    setup, theta = describe(config, ours)
    normalizer = restored_normalizer(config, setup.normalized_inputs, ours)
    statistics = normalizer.statistics() if normalizer else None
    tasks = evaluation_tasks(
        config.seed or 0, ours.counters.update, config.eval_episodes, config.max_episode_length
    )
    with closing(InProcessPool(setup.recipe)) as pool:
        results = pool.evaluate(Snapshot(theta, config.sigma, statistics), tasks)
    mean, std = mean_and_std([result.episode_return for result in results])
    return {"value": mean, "std": std, "frames": ours.counters.frames}


def _failure(directory: Path) -> dict[str, Any] | None:
    """The message that training ended with; none where it has only missed its target."""
    output = (directory / OUTPUT).read_text(errors="replace")
    _, found, message = f"\n{output}".rpartition("\nerror: ")
    return {"error": _in_brief(message)} if found else None


def _in_brief(message: str) -> str:
    """The first line, and the last one where that is what it announces: of a traceback."""
    first, *more = message.strip().splitlines() or [""]
    return f"{first} {more[-1].strip()}" if more and first.endswith(":") else first


def _redirect(path: Path) -> None:
    """Has everything that this process writes go into a file."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    os.close(descriptor)
