"""A worker process: builds an environment and an actor once, then plays what comes."""

from __future__ import annotations

import gc
import signal
import time
import traceback
from contextlib import closing, suppress
from multiprocessing import connection
from typing import Any, NamedTuple

import numpy as np
import torch

from es.rollouts.processes import TERMINAL_SIGNALS, end_with_parent
from es.rollouts.queue import take
from es.rollouts.rollout import Player, Recipe, Result, Snapshot

IDLE = -1


class Failure(NamedTuple):
    """Sent by a worker instead of a result: the traceback of what went wrong."""

    traceback: str


class Ready(NamedTuple):
    """Sent by a worker once its environment and actor are built."""


class Done(NamedTuple):
    """Sent by a worker when it has played a task of a batch."""

    batch: int
    result: Result


class Shared(NamedTuple):
    """What the master and all workers share.

    tasks: the end of the queue to read. theta: (P,) float32 in shared memory, sigma and statistics:
    (2 * inputs,) doubles, the snapshot of the moment. playing: for each worker the index of the
    task that it plays, or IDLE. since: when it began to, as of time.monotonic.
    """

    tasks: connection.Connection
    theta: torch.Tensor
    sigma: Any
    statistics: Any
    playing: Any
    since: Any

    def snapshot(self) -> Snapshot:
        """Return the snapshot whose arrays lie in the shared memory."""
        statistics = None
        if len(self.statistics):
            statistics = np.frombuffer(memoryview(self.statistics)).reshape(2, -1)
        return Snapshot(self.theta.numpy(), self.sigma.value, statistics)


def work(results: connection.Connection, recipe: Recipe, shared: Shared, number: int) -> None:
    """The life of worker `number`: build, then play what comes until there are no more tasks."""
    gc.freeze()  # to look through what was imported would copy the pages that workers share
    # Ctrl-C and a closed terminal reach every process: the master decides when a worker ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, TERMINAL_SIGNALS)
    end_with_parent()
    with suppress(OSError):  # the master closed the connection
        try:
            player = Player(recipe)
        except Exception:
            results.send(Failure(traceback.format_exc()))
            return
        with closing(player.env):
            results.send(Ready())
            snapshot = shared.snapshot()
            while taken := take(shared.tasks):
                batch, task = taken
                shared.since[number] = time.monotonic()
                shared.playing[number] = task.index
                try:
                    result = player.play(snapshot._replace(sigma=shared.sigma.value), task)
                except Exception:
                    results.send(Failure(traceback.format_exc()))
                    return
                results.send(Done(batch, result))
                shared.playing[number] = IDLE
