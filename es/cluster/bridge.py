"""The process that talks to Ray.

Ray ends the process that uses it when its node is lost, and changes signals, threads and standard
error. So the master does not use it.
"""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Mapping
from contextlib import ExitStack
from multiprocessing import connection
from typing import TYPE_CHECKING

from es.cluster.connection import connect, disconnect
from es.cluster.messages import Broken, Connected, Failed, Order, Play, Played, Said, Sum, Summed
from es.cluster.packing import unpack_tasks
from es.errors import RunError
from es.rollouts.processes import TERMINAL_SIGNALS, end_with_parent

if TYPE_CHECKING:
    from es.cluster.dispatcher import Dispatcher


def serve(
    link: connection.Connection,
    address: str,
    folder: str | None,
    cpus: int,
    variables: Mapping[str, str],
    order: Order,
) -> None:
    """Connect to Ray, then answer requests until the master closes the link or ends.

    folder: for the files of a Ray that is started here.
    """
    for number in (signal.SIGINT, signal.SIGHUP):  # the master decides when this process ends
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, TERMINAL_SIGNALS)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    end_with_parent(lambda: disconnect(folder))
    with ExitStack() as stack:  # errors are sent first: Ray may end this process meanwhile
        stack.callback(disconnect, folder)
        try:
            connect(address, folder, cpus=cpus, variables=variables)
            from es.cluster.dispatcher import Dispatcher  # now, since it imports Ray

            dispatcher = Dispatcher(order, say=lambda line: link.send(Said(line)))
            stack.callback(dispatcher.close)
            link.send(Connected())
            _answer(link, dispatcher)
        except RunError as error:
            link.send(Failed(error))
        except (EOFError, BrokenPipeError):  # the master closed the link
            pass
        except Exception:
            link.send(Broken(traceback.format_exc()))


def _answer(link: connection.Connection, dispatcher: Dispatcher) -> None:
    while True:
        request: Play | Sum = link.recv()
        if isinstance(request, Sum):
            # Nothing but the closing of the link can be received before the answer is sent.
            link.send(Summed(dispatcher.sum_noise(*request, abandoned=link.poll)))
            continue
        for results in dispatcher.play(request.snapshot, unpack_tasks(request.tasks)):
            link.send(Played(results, dispatcher.status))
