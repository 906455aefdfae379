"""A worker process: it builds an environment and an actor, then plays tasks."""

import ctypes
import gc
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from functools import partial
from multiprocessing import connection
from multiprocessing.context import BaseContext
from typing import Any, NamedTuple, Self

import numpy as np

from es.errors import episode_trace, no_more_processes, summary_of
from es.rollouts.player import Player
from es.rollouts.processes import TERMINAL_SIGNALS, end_group, end_with_parent
from es.rollouts.queue import take
from es.rollouts.rollout import Recipe, Result, Snapshot, close

IDLE = -1
SHORT = 0.002  # seconds of an episode, after which two tasks are taken at once


class Failure(NamedTuple):
    """Sent by a worker that has failed and ends. cause: in one line. trace: the traceback.

    limited: whether the system allowed it no thread.
    """

    cause: str
    trace: str
    limited: bool = False


class Ready(NamedTuple):
    """Sent by a worker once its environment and actor are built."""


class Done(NamedTuple):
    """A list of these is sent by a worker for the tasks that it has taken."""

    batch: int
    result: Result


class Parting(NamedTuple):
    """Sent by a worker that ends: what the user should know, in a line without a full stop."""

    complaint: str


class Shared(NamedTuple):
    """What the master and all workers share.

    tasks: the readable end of the queue. theta, (P,) floats, sigma, statistics, (2 * inputs,)
    doubles, and spread, like theta or empty: the current snapshot. pairs: whether workers with
    short episodes take two tasks at once. playing: for each worker the index of the task that it
    plays, or IDLE. since: the time.monotonic at which it began that task.
    """

    tasks: connection.Connection
    theta: Any
    sigma: Any
    statistics: Any
    spread: Any
    pairs: Any
    playing: Any
    since: Any

    @classmethod
    def allocate(
        cls,
        context: BaseContext,
        tasks: connection.Connection,
        size: int,
        inputs: int,
        *,
        spread: bool,
        workers: int,
    ) -> Self:
        """Return all this, of which only `tasks` is there already."""
        return cls(
            tasks,
            theta=context.RawArray(ctypes.c_float, size),
            sigma=context.RawValue(ctypes.c_double),
            statistics=context.RawArray(ctypes.c_double, 2 * inputs),
            spread=context.RawArray(ctypes.c_float, size if spread else 0),
            pairs=context.RawValue(ctypes.c_bool),
            playing=context.RawArray(ctypes.c_longlong, [IDLE] * workers),
            since=context.RawArray(ctypes.c_double, workers),
        )

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
    # A group of its own ends as a whole, even if the worker is dead and its children are orphans.
    os.setpgid(0, 0)
    # The first two may have been sent to the master's group before. The others would stop a group
    # in the background that uses the terminal.
    for ignored in (signal.SIGINT, signal.SIGHUP, signal.SIGTTIN, signal.SIGTTOU):
        signal.signal(ignored, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, TERMINAL_SIGNALS)
    try:
        end_with_parent(partial(end_group, os.getpid()))
    except RuntimeError as error:
        results.send(Failure(summary_of(error), "", limited=no_more_processes(error)))
        return
    with suppress(OSError):  # the master closed the connection
        _serve(results, recipe, shared, number)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # nobody reads it, or it is closed
            print(end="", file=stream, flush=True)
    end_group(os.getpid())  # the master may be dead


def _serve(results: connection.Connection, recipe: Recipe, shared: Shared, number: int) -> None:
    """Build and play until the queue is closed or something fails; close the environment."""
    try:
        player = Player(recipe)
    except BaseException as error:
        results.send(Failure(summary_of(error), episode_trace(error)))
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
    snapshot, count = shared.snapshot(), 1
    while taken := take(shared.tasks, count):
        done: list[Done] = []
        for batch, task in taken:
            began = shared.since[number] = time.monotonic()
            shared.playing[number] = task.index
            try:
                result = player.play(snapshot._replace(sigma=shared.sigma.value), task)
            except BaseException as error:
                results.send(done)
                results.send(Failure(summary_of(error), episode_trace(error)))
                return
            done.append(Done(batch, result))
        shared.playing[number] = IDLE  # first: once the master has all results, no worker is busy
        results.send(done)
        # Mirrored twins, which share their noise, lie side by side, + before -.
        short = time.monotonic() - began < SHORT and task.sign != 1
        count = 2 if short and shared.pairs.value else 1


def lasting_threads() -> list[str]:
    """Return the threads that keep this process from ending, in words."""
    main = threading.main_thread()
    others = [each for each in threading.enumerate() if not each.daemon and each is not main]
    return [f"thread {each.name}" for each in others]


def end_children() -> list[str]:
    """Kill what this process has started and left; return it in words.

    All but the helpers of multiprocessing, which end by themselves, and sessions of their own.
    """
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:  # most often, there are none
        return []
    import psutil

    ended = []
    for child in psutil.Process().children():
        with suppress(psutil.Error, ProcessLookupError):
            is_helper = any("from multiprocessing." in word for word in child.cmdline())
            if not is_helper and os.getsid(child.pid) == os.getsid(0):
                name = child.name()
                for each in (child, *child.children(recursive=True)):
                    each.kill()
                ended.append(f"process {name}")
    return ended
