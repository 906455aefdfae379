"""A worker process: builds an environment and an actor once, then plays what comes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import traceback
from contextlib import closing, suppress
from multiprocessing import connection
from typing import Any, NamedTuple

import numpy as np

from es.rollout import Player, Recipe, Result, Snapshot
from es.workers.processes import TERMINAL_SIGNALS


class Failure(NamedTuple):
    """Sent by a worker instead of a result: the traceback of what went wrong."""

    traceback: str


class Ready(NamedTuple):
    """Sent by a worker once its environment and actor are built."""


def work(
    tasks: connection.Connection, recipe: Recipe, shared_theta: Any, shared_sigma: Any
) -> None:
    """A worker's life: build, then play what comes until the master closes the connection."""
    # Ctrl-C and a closed terminal reach every process: the master decides when a worker ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, TERMINAL_SIGNALS)
    threading.Thread(target=_end_with_master, daemon=True).start()
    theta = np.frombuffer(memoryview(shared_theta), dtype=np.float32)
    with suppress(EOFError, OSError):  # the master closed the connection
        try:
            player = Player(recipe)
        except Exception:
            tasks.send(Failure(traceback.format_exc()))
            return
        message: Ready | Result | Failure = Ready()
        with closing(player.env):
            while not isinstance(message, Failure):
                tasks.send(message)
                task = tasks.recv()
                try:
                    message = player.play(Snapshot(theta, shared_sigma.value), task)
                except Exception:
                    message = Failure(traceback.format_exc())
            tasks.send(message)


def _end_with_master() -> None:
    """Ends this process when the master is gone, however it went, even in a long episode."""
    master = multiprocessing.parent_process()
    assert master is not None
    connection.wait([master.sentinel])
    os._exit(1)
