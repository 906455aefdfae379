"""Connecting to a Ray cluster, or starting a Ray on this machine."""

import logging
import os
import secrets
import shutil
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from es.errors import PROJECT, UsageError
from es.rollouts.processes import ONE_THREAD

AUTO, LOCAL = "auto", "local"
# Files not to upload to the nodes. Ray also leaves out what git ignores.
NOT_SENT = ["*.safetensors", "*.pth", "/checkpoints/", ".*/"]
CONNECT_SECONDS = 5.0
DELETE_SECONDS = 3.0
LONGEST_CAUSE = 300  # characters of a message of Ray


def connect(address: str, folder: str | None, *, cpus: int, variables: Mapping[str, str]) -> None:
    """Connect to the cluster at `address`, or start a Ray of `cpus` CPUs with files in `folder`.

    variables: environment variables of the nodes' processes. This process gets variables for Ray,
    and its output is dropped, so it should do nothing else. Raise UsageError if that fails.
    """
    where: dict[str, Any] = {"address": address}
    sent: dict[str, Any] = {"env_vars": {**ONE_THREAD, **variables}}
    own = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_AUTO_CONNECT": "0"}
    if address == LOCAL:
        assert folder is not None
        where |= {"num_cpus": cpus, "include_dashboard": False, "_temp_dir": folder}
        path = [str(PROJECT), *filter(None, [os.environ.get("PYTHONPATH")])]
        sent["env_vars"] |= {
            "PYTHONPATH": os.pathsep.join(path),  # with what is compiled there
            "TMPDIR": folder,  # for what killed processes leave behind
        }
        # No other user has access, and it listens on the loopback interface alone.
        own |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex()}
        own["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    else:
        here = Path.cwd()  # may hold the user's own environment
        sent |= {"py_modules": [str(PROJECT / "es")], "working_dir": str(here)}
        sent["excludes"] = [*NOT_SENT, *folders_without_code(here)]
        # Otherwise Ray ends this process if the head node is silent for a minute.
        own["RAY_gcs_rpc_server_reconnect_timeout_s"] = "1000000"
    os.environ.update(own)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (1, 2):  # Ray prints there
        os.dup2(nowhere, stream)
    try:
        if address not in (LOCAL, AUTO):  # Ray would try for minutes
            host, _, port = address.rpartition(":")
            socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
        import ray

        ray.init(**where, runtime_env=sent, log_to_driver=False, logging_level=logging.CRITICAL)
    except Exception as error:
        raise UsageError(_refusal(address, error)) from error


def disconnect(folder: str | None) -> None:
    """Give everything back to Ray, and delete the folder of a Ray that was started here."""
    with suppress(Exception):
        import ray

        ray.shutdown()
    deadline = time.monotonic() + DELETE_SECONDS
    while folder and os.path.exists(folder) and time.monotonic() < deadline:
        shutil.rmtree(folder, ignore_errors=True)  # a worker may still end, and write
        time.sleep(0.05)


def folders_without_code(project: Path) -> list[str]:
    """Return the folders of virtual environments and runs in a folder, as patterns."""
    found = []
    for folder, subfolders, files in os.walk(project):
        if {"pyvenv.cfg", "progress.csv"} & {*files}:
            found.append(f"/{Path(folder).relative_to(project)}/")
            subfolders.clear()
        subfolders[:] = [name for name in subfolders if not name.startswith((".", "__"))]
    return found


def _refusal(address: str, error: Exception) -> str:
    said = " ".join(str(error).split())[:LONGEST_CAUSE]
    if address == LOCAL:
        return f"--ray {address}: Ray cannot be started here ({said})"
    if isinstance(error, OSError):  # as Ray's own ConnectionError is
        return (
            f"--ray {address}: no cluster can be reached from this machine, which must be one of "
            "its nodes (ray start --address=...) and have its token, if it has one "
            f"(RAY_AUTH_MODE=token): {said}"
        )
    return f"--ray {address}: {said}"
