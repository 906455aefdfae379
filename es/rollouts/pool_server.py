"""The process of a `PoolProcess`: it makes the pool, and calls its methods as it is told."""

import queue
import signal
import sys
import threading
import traceback
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from es.errors import Interrupted, Interrupts, LimitError, RunError, naming_limits
from es.rollouts.interface import Pool
from es.rollouts.messages import Answer, Begin, Call, Failed, Open, Progressed, Said
from es.rollouts.processes import leave, start_forkserver

Requests = queue.SimpleQueue[Open | Call | None]


def main() -> None:
    """Serve the program at the other end of the connection whose file this process is told."""
    link = Connection(int(sys.argv[1]))
    with Interrupts() as interrupts, suppress(OSError, EOFError, Interrupted):
        begin: Begin = link.recv()
        sys.path[:] = begin.path
        try:
            if begin.preload:
                start_forkserver(begin.preload)
        except RunError as error:
            link.send(Failed(error))
        requests: Requests = queue.SimpleQueue()
        try:
            with naming_limits():
                threading.Thread(target=_receive, args=(link, requests), daemon=True).start()
        except LimitError as error:
            link.send(Failed(error))
        else:
            interrupts.defer()
            _serve(link, requests, interrupts)
    leave(0)


def _receive(link: Connection, requests: Requests) -> None:
    """Queue requests; at the end of the program, or when it wants no more, interrupt a batch."""
    with suppress(OSError, EOFError):
        while request := link.recv():
            requests.put(request)
    requests.put(None)
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)


def _serve(link: Connection, requests: Requests, interrupts: Interrupts) -> None:
    pool: Any = None
    try:
        while request := requests.get():
            try:
                with interrupts.allowed():
                    if isinstance(request, Open):
                        say = partial(_say, link)
                        pool = request.make(request.recipe, say=say, **request.settings)
                        link.send(Answer(None, pool.describe()))
                    else:
                        _answer(link, pool, request)
            except RunError as error:
                link.send(Failed(error))
            except Exception as error:
                trace = traceback.format_exc()
                link.send(Failed(RunError(f"the pool has failed ({error!r})", trace)))
    finally:
        if pool:
            pool.close()


def _answer(link: Connection, pool: Pool, request: Call) -> None:
    arguments = request.arguments
    if request.method == "prepare":  # nobody waits for an answer
        pool.prepare(*arguments)
        return
    if request.method == "evaluate":
        arguments += (lambda done: link.send(Progressed(done, pool.describe())),)
    value = getattr(pool, request.method)(*arguments)
    link.send(Answer(value, pool.describe()))


def _say(link: Connection, line: str) -> None:
    with suppress(OSError):
        link.send(Said(line))
