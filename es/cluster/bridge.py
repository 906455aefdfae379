"""The process that talks to Ray.

Ray ends the process that uses it when the node that it runs on is lost, and has its own ways with
signals, threads and standard error. Here it may.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Mapping
from multiprocessing import connection
from typing import TYPE_CHECKING

from es.cluster.connection import RayConnection
from es.cluster.messages import Broken, Connected, Failed, Order, Play, Played, Said, Sum, Summed
from es.cluster.packing import unpack_tasks
from es.errors import RunError
from es.rollouts.processes import TERMINAL_SIGNALS

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
    """Connects to Ray, then does what is asked for until the master hangs up or is gone.

    folder: for the files of a Ray that is started here.
    """
    for number in (signal.SIGINT, signal.SIGHUP):  # the master decides when this process ends
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, TERMINAL_SIGNALS)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    ray = RayConnection(address, folder)
    threading.Thread(target=_end_with_master, args=(ray,), daemon=True).start()
    try:
        ray.connect(cpus=cpus, variables=variables)
        from es.cluster.dispatcher import Dispatcher  # now, since it imports Ray

        dispatcher = Dispatcher(order, say=lambda line: link.send(Said(line)))
        try:
            link.send(Connected())
            _answer(link, dispatcher)
        except RunError as error:  # before anything else is tried
            link.send(Failed(error))
        finally:
            dispatcher.close()
    except RunError as error:
        link.send(Failed(error))
    except (EOFError, BrokenPipeError):  # the master hung up
        pass
    except Exception:
        link.send(Broken(traceback.format_exc()))
    finally:
        ray.close()


def _answer(link: connection.Connection, dispatcher: Dispatcher) -> None:
    while True:
        request: Play | Sum = link.recv()
        if isinstance(request, Sum):
            link.send(Summed(dispatcher.sum_noise(*request)))
            continue
        for results in dispatcher.play(request.snapshot, unpack_tasks(request.tasks)):
            link.send(Played(results, dispatcher.status))


def _end_with_master(ray: RayConnection) -> None:
    """Ends this process when the master is gone, however it went."""
    master = multiprocessing.parent_process()
    assert master is not None
    connection.wait([master.sentinel])
    ray.close()
    os._exit(1)
