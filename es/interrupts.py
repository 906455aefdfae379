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
    """Has the signals handled while it is open. A second one ends the process at once."""

    def __init__(self) -> None:
        self._received: int | None = None
        self._deferred = False
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

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """In here, an interrupt waits for `allowed` or for the end."""
        self._deferred = True
        yield
        self._deferred = False
        self._raise()

    @contextmanager
    def allowed(self) -> Iterator[None]:
        """In here, inside `deferred`, an interrupt is raised at once."""
        self._deferred = False
        self._raise()
        try:
            yield
        finally:
            self._deferred = True

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._received is not None:
            os._exit(128 + number)  # the workers notice, and end themselves
        self._received = number
        if not self._deferred:
            self._raise()

    def _raise(self) -> None:
        if self._received is not None:
            self._deferred = True  # what is cleaned up now is not interrupted again
            raise Interrupted(self._received)
