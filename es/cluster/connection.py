"""Ray itself, connected to a cluster or started on this machine."""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import socket
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from es.errors import UsageError
from es.workers.processes import ONE_THREAD

AUTO, LOCAL = "auto", "local"
PROJECT = Path(__file__).resolve().parent.parent.parent
# What may lie in the project's folder and is no code; what git ignores is left out anyway.
NOT_SENT = ["*.pth", "events.out.tfevents.*", "/checkpoints/", "/benchmarks/", ".*/"]
CONNECT_SECONDS = 5.0
LONGEST = 300  # characters of what Ray says


class Connection:
    """A connection to the cluster at `address`, or to a Ray of `cpus` CPUs on this machine.

    variables: of the environment that the project's processes get. Raises UsageError where there is
    no cluster. It sets variables of Ray's own, so it wants a process to itself.
    """

    def __init__(self, address: str, *, cpus: int, variables: Mapping[str, str]) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        self._folder: str | None = None
        where: dict[str, Any] = {"address": address}
        sent: dict[str, Any] = {"env_vars": {**ONE_THREAD, **variables}}
        if address == LOCAL:
            self._folder = tempfile.mkdtemp(prefix="ray-")
            where |= {"num_cpus": cpus, "include_dashboard": False, "_temp_dir": self._folder}
            path = [str(PROJECT), *filter(None, [os.environ.get("PYTHONPATH")])]
            sent["env_vars"] |= {
                "PYTHONPATH": os.pathsep.join(path),  # with what is compiled there
                "TMPDIR": self._folder,  # for what killed processes leave behind
            }
            # Nobody else may use it, and it listens on the loopback interface alone.
            os.environ["RAY_AUTH_MODE"], os.environ["RAY_AUTH_TOKEN"] = "token", secrets.token_hex()
            os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
        else:
            sent |= {"working_dir": str(PROJECT), "excludes": NOT_SENT}
            # Or Ray would end this process a minute after the head node does not answer.
            os.environ.setdefault("RAY_gcs_rpc_server_reconnect_timeout_s", "1000000")
        try:
            if address not in (LOCAL, AUTO):  # which Ray would try for minutes
                host, _, port = address.rpartition(":")
                socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
            import ray

            ray.init(**where, runtime_env=sent, log_to_driver=False, logging_level=logging.CRITICAL)
        except Exception as error:
            self.close()
            raise UsageError(_refusal(address, error)) from error

    def close(self) -> None:
        """Gives everything back; may be repeated."""
        with suppress(Exception):
            import ray

            ray.shutdown()
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)


def _refusal(address: str, error: Exception) -> str:
    said = " ".join(str(error).split())[:LONGEST]
    if address == LOCAL:
        return f"--ray {address}: Ray cannot be started here ({said})"
    return (
        f"--ray {address}: no cluster can be reached from this machine, which must be one of its "
        f"nodes (ray start --address=...): {said}"
    )
