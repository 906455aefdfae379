"""The program that calls a training: what it chooses, and what it finds again afterwards."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from es.errors import Interrupted, Interrupts
from es.rollouts.tasks import Pool

if TYPE_CHECKING:  # `learn` imports this file before it starts the workers: nothing heavy
    from es.reports.record import Record
    from es.reports.terminal import Terminal
    from es.train import Trainer

# Called as `open_pool(make, recipe, **settings)`; returns what `make(recipe, **settings)` makes.
OpenPool = Callable[..., Pool]
AfterUpdate = Callable[["Record", "Trainer"], Any]


class Host(NamedTuple):
    """The caller's choice.

    console: makes what shows the run. after_update: called with the figures of each update; the run
    ends if it returns False.
    """

    console: Callable[..., Terminal]
    open_pool: OpenPool
    after_update: AfterUpdate


def _terminal(**settings: Any) -> Terminal:
    from es.reports.terminal import Terminal

    return Terminal(**settings)


COMMAND_LINE = Host(
    _terminal,
    open_pool=lambda make, recipe, **settings: make(recipe, **settings),
    after_update=lambda record, trainer: None,
)


class HostState:
    """A context that undoes what a training changes in its process.

    `sys.path`, environment variables, the shared generators of Python and NumPy, and once
    `libraries` is called, torch's generator and number of threads, and Gymnasium's level of
    warnings. Of trainings in several threads, the first notes all this, and the last restores it.
    """

    _lock = threading.Lock()
    _users = 0
    _undo = ExitStack()

    def __enter__(self) -> Self:
        import numpy as np

        with self._lock:
            HostState._users += 1
            if self._users == 1:
                self._undo.callback(sys.path.__setitem__, slice(None), [*sys.path])
                self._undo.callback(_restore_variables, dict(os.environ))
                self._undo.callback(random.setstate, random.getstate())
                self._undo.callback(np.random.set_state, np.random.get_state())
        return self

    def libraries(self) -> None:
        """Have torch use one thread, so that rounding is the same everywhere, and warnings end."""
        import gymnasium
        import torch

        with self._lock:
            level = gymnasium.logger.min_level
            self._undo.callback(setattr, gymnasium.logger, "min_level", level)
            self._undo.callback(torch.set_num_threads, torch.get_num_threads())
            self._undo.callback(torch.set_rng_state, torch.get_rng_state())
            gymnasium.logger.min_level = gymnasium.logger.ERROR
            torch.set_num_threads(1)

    def __exit__(self, *exception: object) -> None:
        with self._lock:
            HostState._users -= 1
            if not self._users:
                self._undo.close()


def _restore_variables(before: dict[str, str]) -> None:
    for name in os.environ.keys() - before.keys():
        del os.environ[name]
    os.environ.update(before)


class HostInterrupts(Interrupts):
    """The interrupts of a program that calls a training: Ctrl-C, if Python handles it.

    It never ends the process: a second Ctrl-C raises `Interrupted` anywhere. In other threads than
    the main one, or if the program has a handler of its own, nothing is handled.
    """

    def __enter__(self) -> Self:
        ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if ours and threading.current_thread() is threading.main_thread():
            self._before[signal.SIGINT] = signal.signal(signal.SIGINT, self._handle)
        return self

    def _end_at_once(self, number: int) -> None:
        raise Interrupted(number)
