"""A worker process: it builds an environment and an actor, then plays tasks."""

import gc
import os
import signal
import time
from contextlib import suppress
from multiprocessing import connection
from typing import Any, NamedTuple

import numpy as np

from es.errors import episode_trace, in_short
from es.program import end_children, lasting_threads
from es.rollouts.processes import TERMINAL_SIGNALS, end_with_parent
from es.rollouts.queue import take
from es.rollouts.rollout import Player, Recipe, Result, Snapshot, close

IDLE = -1


class Failure(NamedTuple):
    """Sent by a worker that has failed and ends. cause: in one line. trace: the traceback."""

    cause: str
    trace: str


class Ready(NamedTuple):
    """Sent by a worker once its environment and actor are built."""


class Done(NamedTuple):
    """Sent by a worker for each task that it has played."""

    batch: int
    result: Result


class Parting(NamedTuple):
    """Sent by a worker that ends: what the user should know, in a line without a full stop."""

    complaint: str


class Shared(NamedTuple):
    """What the master and all workers share.

    tasks: the readable end of the queue. theta, (P,) floats, sigma, statistics, (2 * inputs,)
    doubles, and spread, like theta or empty: the current snapshot. playing: for each worker the
    index of the task that it plays, or IDLE. since: the time.monotonic at which it took that task.
    """

    tasks: connection.Connection
    theta: Any
    sigma: Any
    statistics: Any
    spread: Any
    playing: Any
    since: Any

    def snapshot(self) -> Snapshot:
        """Return the current snapshot, whose arrays are views of the shared memory."""
        statistics = spread = None
        if len(self.statistics):
            statistics = np.frombuffer(self.statistics).reshape(2, -1)
        if len(self.spread):
            spread = np.frombuffer(self.spread, np.float32)
        return Snapshot(np.frombuffer(self.theta, np.float32), self.sigma.value, statistics, spread)

    def publish(self, snapshot: Snapshot) -> None:
        """Make a snapshot the current one."""
        self.sigma.value = snapshot.sigma
        for ours, theirs in zip(self.snapshot(), snapshot, strict=True):
            if isinstance(ours, np.ndarray) and isinstance(theirs, np.ndarray):
                np.copyto(ours, theirs)


def work(results: connection.Connection, recipe: Recipe, shared: Shared, number: int) -> None:
    """Run worker `number`: build, then play tasks until the queue is closed."""
    gc.freeze()  # collecting imported objects would copy the pages that workers share
    # Ctrl-C and a closed terminal reach every process, but the master decides when a worker ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, TERMINAL_SIGNALS)
    end_with_parent(end_children)
    with suppress(OSError):  # the master closed the connection
        _serve(results, recipe, shared, number)
    end_children()
    if lasting_threads():  # Python would wait for them
        os._exit(0)


def _serve(results: connection.Connection, recipe: Recipe, shared: Shared, number: int) -> None:
    """Build and play until the queue is closed or something fails; close the environment."""
    try:
        player = Player(recipe)
    except BaseException as error:
        results.send(Failure(in_short(error), episode_trace(error)))
        return
    try:
        results.send(Ready())
        _play(results, player, shared, number)
    finally:
        if complaint := close(player.env):
            results.send(Parting(complaint))
        if left := [*end_children(), *lasting_threads()]:
            results.send(Parting(f"still ran after its close(), and ended: {', '.join(left)}"))


def _play(results: connection.Connection, player: Player, shared: Shared, number: int) -> None:
    snapshot = shared.snapshot()
    while taken := take(shared.tasks):
        batch, task = taken
        shared.since[number] = time.monotonic()
        shared.playing[number] = task.index
        try:
            result = player.play(snapshot._replace(sigma=shared.sigma.value), task)
        except BaseException as error:
            results.send(Failure(in_short(error), episode_trace(error)))
            return
        results.send(Done(batch, result))
        shared.playing[number] = IDLE
