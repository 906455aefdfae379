"""Turn Ctrl-C, SIGTERM and a closed terminal into an exception where the program allows it."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """The user wants the program to end. No library's `except Exception` catches it."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.status = 128 + number


class Interrupts:
    """A context in which this class handles the signals.

    Before `defer`, a signal ends the process at once: there is nothing to save, and libraries may
    catch an exception in their imports. A second signal always ends it at once.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._deferred = self._allowed = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in SIGNALS:
            # nohup starts a program with SIGHUP ignored.
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def defer(self) -> None:
        """Make interrupts wait for `allowed` from now on."""
        self._deferred = True

    @contextmanager
    def allowed(self) -> Iterator[None]:
        """Raise Interrupted at once for an interrupt in this context, or for one that waits."""
        self._allowed = True
        try:
            if self.received is not None:
                raise Interrupted(self.received)
            yield
        finally:
            self._allowed = False

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None or not self._deferred:
            self._end_at_once(number)
        self.received = number
        if self._allowed:
            raise Interrupted(number)

    def _end_at_once(self, number: int) -> None:
        os._exit(128 + number)  # the workers then end themselves


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
