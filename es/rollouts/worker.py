"""A worker process: it makes an environment and an actor, then plays tasks."""

import ctypes
import gc
import multiprocessing
import os
import pickle
import sys
import time
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from typing import Any

import numpy as np

from es.errors import episode_trace, summary_of
from es.rollouts.episode import close
from es.rollouts.player import Player
from es.rollouts.processes import become_worker, end_group
from es.rollouts.tasks import TASK, Recipe, Snapshot, each_task

IDLE = -1
SHORT_SECONDS = 0.002  # after a shorter episode, a worker takes two tasks at a time
RESULTS, FAILURE = b"r", b"f"  # the first byte of a worker's message


class Shared:
    """What the master and all workers share; the other arguments are those of `WorkerPool`.

    tasks: the end of the pipe that workers read tasks from. take_two: whether workers with short
    episodes take two tasks at a time. playing: for each worker the index of the task that it plays,
    or IDLE. since: the time.monotonic at which it began that task.
    """

    def __init__(
        self,
        context: BaseContext,
        tasks: Connection,
        size: int,
        inputs: int,
        *,
        relative_sigma: bool,
        workers: int,
    ) -> None:
        self.tasks = tasks
        self._theta: Any = context.RawArray(ctypes.c_float, size)
        self.sigma = context.RawValue(ctypes.c_double)
        self._statistics: Any = context.RawArray(ctypes.c_double, 2 * inputs)
        self._relative_sigma: Any = context.RawArray(ctypes.c_float, size if relative_sigma else 0)
        self.take_two = context.RawValue(ctypes.c_bool)
        self.playing = context.RawArray(ctypes.c_longlong, [IDLE] * workers)
        self.since = context.RawArray(ctypes.c_double, workers)

    def snapshot(self) -> Snapshot:
        """Return the current snapshot, whose arrays are views of the shared memory."""
        statistics = relative_sigma = None
        if len(self._statistics):
            statistics = np.frombuffer(self._statistics).reshape(2, -1)
        if len(self._relative_sigma):
            relative_sigma = np.frombuffer(self._relative_sigma, np.float32)
        theta = np.frombuffer(self._theta, np.float32)
        return Snapshot(theta, self.sigma.value, statistics, relative_sigma)

    def publish(self, snapshot: Snapshot) -> None:
        """Make a snapshot the current one."""
        self.sigma.value = snapshot.sigma
        for shared, new in zip(self.snapshot(), snapshot, strict=True):
            if isinstance(shared, np.ndarray) and isinstance(new, np.ndarray):
                np.copyto(shared, new)


def work(link: Connection, recipe: Recipe, shared: Shared, number: int) -> None:
    """Run worker `number` until the pipe of tasks is closed or something fails."""
    gc.freeze()  # collecting imported objects would copy the pages that workers share
    # A group of its own ends as a whole, even if the worker is dead and its children are orphans.
    os.setpgid(0, 0)
    multiprocessing.current_process().daemon = False  # an environment may use multiprocessing, too
    try:
        with suppress(OSError):  # the master has closed the connection
            _serve(link, recipe, shared, number)
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):  # nobody reads it, or it is closed
                stream.flush()
    finally:
        end_group(os.getpid())


def _serve(link: Connection, recipe: Recipe, shared: Shared, number: int) -> None:
    try:
        become_worker()
        player = Player(recipe)
    except BaseException as error:
        _send_failure(link, error)
        return
    try:
        link.send_bytes(RESULTS)  # none yet: it is ready
        _play(link, player, shared, number)
    finally:
        close(player.env)


def _play(link: Connection, player: Player, shared: Shared, number: int) -> None:
    snapshot, count = shared.snapshot(), 1
    results = snapshot.results(2)
    while records := os.read(shared.tasks.fileno(), count * TASK.itemsize):
        tasks = [*each_task(np.frombuffer(records, TASK))]
        for done, (batch, index, task) in enumerate(tasks):
            began = shared.since[number] = time.monotonic()
            shared.playing[number] = index
            try:
                played = player.play(snapshot._replace(sigma=shared.sigma.value), task)
            except BaseException as error:
                link.send_bytes(RESULTS + results[:done].tobytes())
                _send_failure(link, error)
                return
            results[done] = batch, index, *played
        shared.playing[number] = IDLE  # first: once the master has all results, no worker is busy
        link.send_bytes(RESULTS + results[: len(tasks)].tobytes())
        # Mirrored twins, which share their noise, lie side by side, + before -.
        is_short = time.monotonic() - began < SHORT_SECONDS and task.sign != 1
        count = 2 if is_short and shared.take_two.value else 1


def _send_failure(link: Connection, error: BaseException) -> None:
    link.send_bytes(FAILURE + pickle.dumps((summary_of(error), episode_trace(error))))
