"""A worker process: it builds an environment and an actor, then plays tasks."""

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
    """Sent by a worker that has failed and ends."""

    traceback: str


class Ready(NamedTuple):
    """Sent by a worker once its environment and actor are built."""


class Done(NamedTuple):
    """Sent by a worker for each task that it has played."""

    batch: int
    result: Result


class Shared(NamedTuple):
    """What the master and all workers share.

    tasks: the readable end of the queue. theta, (P,) float32, sigma, and statistics, (2 * inputs,)
    doubles: the current snapshot. playing: for each worker the index of the task that it plays, or
    IDLE. since: the time.monotonic at which it took that task.
    """

    tasks: connection.Connection
    theta: torch.Tensor
    sigma: Any
    statistics: Any
    playing: Any
    since: Any

    def snapshot(self) -> Snapshot:
        """Return the current snapshot, whose arrays are views of the shared memory."""
        statistics = None
        if len(self.statistics):
            statistics = np.frombuffer(memoryview(self.statistics)).reshape(2, -1)
        return Snapshot(self.theta.numpy(), self.sigma.value, statistics)


def work(results: connection.Connection, recipe: Recipe, shared: Shared, number: int) -> None:
    """Run worker `number`: build, then play tasks until the queue is closed."""
    gc.freeze()  # collecting imported objects would copy the pages that workers share
    # Ctrl-C and a closed terminal reach every process, but the master decides when a worker ends.
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
