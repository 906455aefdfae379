"""Ray itself: kept quiet, and connected to a cluster or started on this machine."""

from __future__ import annotations

import atexit
import importlib.util
import logging
import os
import secrets
import shutil
import signal
import socket
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from es.errors import UsageError
from es.workers.processes import ONE_THREAD

AUTO, LOCAL = "auto", "local"
PROJECT = Path(__file__).resolve().parent.parent.parent
# What may lie in the project's folder and is no code; what git ignores is left out anyway.
NOT_SENT = ["*.pth", "events.out.tfevents.*", "/checkpoints/", "/benchmarks/", ".*/"]
QUIET = {"RAY_USAGE_STATS_ENABLED": "0"}
# Or Ray would end this process a minute after the head node does not answer.
PATIENT = {"RAY_gcs_rpc_server_reconnect_timeout_s": "1000000"}
CONNECT_SECONDS, SHUTDOWN_SECONDS = 5.0, 2.0
LONGEST = 300  # characters of what Ray says


class Connection:
    """A connection to the cluster at `address`, or to a Ray of `cpus` CPUs on this machine.

    variables: of the environment that the project's processes get. Raises UsageError where there is
    no Ray, or no cluster.
    """

    def __init__(self, address: str, *, cpus: int, variables: Mapping[str, str]) -> None:
        if importlib.util.find_spec("ray") is None:
            raise UsageError(
                f"--ray {address}: Ray is not installed; pip install -r requirements-ray.txt"
            )
        # Not the processes of a Ray that is started here: they are to end when nobody answers.
        for name, value in (QUIET | (PATIENT if address != LOCAL else {})).items():
            os.environ.setdefault(name, value)
        self._folder: str | None = None
        where: dict[str, Any] = {"address": address}
        sent: dict[str, Any] = {"env_vars": {**ONE_THREAD, **variables}}
        if address == LOCAL:
            self._folder = tempfile.mkdtemp(prefix="ray-")
            where |= {"num_cpus": cpus, "include_dashboard": False, "_temp_dir": self._folder}
            path = [str(PROJECT), *filter(None, [os.environ.get("PYTHONPATH")])]
            sent["env_vars"]["PYTHONPATH"] = os.pathsep.join(path)  # with what is compiled there
            sent["env_vars"]["TMPDIR"] = self._folder  # for what killed processes leave behind
            # Nobody else may use it, and it listens on the loopback interface alone.
            os.environ["RAY_AUTH_MODE"], os.environ["RAY_AUTH_TOKEN"] = "token", secrets.token_hex()
            os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
        else:
            sent |= {"working_dir": str(PROJECT), "excludes": NOT_SENT}
        try:
            if address not in (LOCAL, AUTO):
                host, _, port = address.rpartition(":")
                socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
            with _own_signals(), _without_noise():
                import ray

                # Dumps of a lost node's state; there is no setting for it.
                ray._private.worker.print_to_stdstream = lambda *args, **kwargs: None
                ray.init(
                    **where, runtime_env=sent, log_to_driver=False, logging_level=logging.CRITICAL
                )
        except Exception as error:
            self.close()
            raise UsageError(_refusal(address, error)) from error

    def close(self) -> None:
        """Gives everything back; may be repeated."""
        # Where the head node is gone, it would try to tell it for long.
        closing = threading.Thread(target=_shut_down, daemon=True)
        closing.start()
        closing.join(SHUTDOWN_SECONDS)
        if closing.is_alive():
            import ray

            atexit.unregister(ray.shutdown)
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)


@contextmanager
def _own_signals() -> Iterator[None]:
    """Ray installs handlers, which are replaced by those of before."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


@contextmanager
def _without_noise() -> Iterator[None]:
    """What Ray's native code writes to standard error while it tries to connect is thrown away."""
    stderr, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(nowhere)


def _shut_down() -> None:
    with suppress(Exception):
        import ray

        ray.shutdown()


def _refusal(address: str, error: Exception) -> str:
    said = " ".join(str(error).split())[:LONGEST]
    if address == LOCAL:
        return f"--ray {address}: Ray cannot be started here ({said})"
    return (
        f"--ray {address}: no cluster can be reached from this machine, which must be one of its "
        f"nodes (ray start --address=...): {said}"
    )
