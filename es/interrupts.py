"""Ctrl-C, SIGTERM and a closed terminal, turned into an exception at moments that allow it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """The user wants the program to end; no `except Exception` of a library may stop it."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.status = 128 + number


class Interrupts:
    """Has the signals handled while it is open.

    At first, one ends the process at once, as a second one always does: there is nothing to save,
    and an exception would be lost in the imports of libraries that catch everything.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._deferred = self._allowed = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        """Installs the handlers."""
        for number in SIGNALS:
            # nohup starts a program with SIGHUP ignored.
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *exception: object) -> None:
        """Restores what was installed before."""
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def defer(self) -> None:
        """From now on, an interrupt waits for `allowed`."""
        self._deferred = True

    @contextmanager
    def allowed(self) -> Iterator[None]:
        """In here, an interrupt raises Interrupted at once."""
        self._allowed = True
        try:
            if self.received is not None:
                raise Interrupted(self.received)
            yield
        finally:
            self._allowed = False

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None or not self._deferred:
            os._exit(128 + number)  # the workers notice, and end themselves
        self.received = number
        if self._allowed:
            raise Interrupted(number)
