"""Reports to Weights & Biases, through a process of its own (es.reports.wandb_process).

There, its import, its encoding and a slow network hold nothing up, and it can be ended at any time.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import psutil

from es.errors import UsageError, in_one_line
from es.rollouts.processes import importing_variables

PROJECT = "evolution-strategies"
MOST_WAITING = 2**26  # bytes that the process has not taken yet
BUCKETS = 32


class WandbReporter:
    """A run's reports. Raises UsageError where Weights & Biases cannot be used.

    say, warn: are told where the run is seen, and what goes wrong; neither is reason to end a run.
    """

    def __init__(self, say: Callable[[str], None], warn: Callable[[str], None]) -> None:
        if importlib.util.find_spec("wandb") is None:
            raise UsageError(
                "--wandb: wandb is not installed; pip install -r requirements-extra.txt"
            )
        self._say, self._warn = say, warn
        self._lost, self._folder = False, ""
        self._temporary = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self._waiting = bytearray()
        self._listener = threading.Thread(target=self._listen, name="wandb", daemon=True)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "es.reports.wandb_process"],
            env={"WANDB_PROJECT": PROJECT, **os.environ, "WANDB_SILENT": "true"}
            | importing_variables()
            | {"TMPDIR": self._temporary.name},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # the terminal's Ctrl-C must not interrupt the last reports
        )
        assert self._process.stdin is not None
        os.set_blocking(self._process.stdin.fileno(), False)
        if complaint := self._hear().get("complaint"):
            self.kill()
            raise UsageError(f"--wandb: {complaint}")

    def begin(self, directory: Path, config: Mapping[str, Any]) -> None:
        """Opens the run of this directory, new or carried on. config: its settings."""
        self._listener.start()
        self._send(directory=str(directory.resolve()), config=config, master=os.getpid())

    def log(
        self,
        figures: Mapping[str, float],
        update: int,
        distributions: Mapping[str, npt.NDArray[np.float64]],
    ) -> None:
        """Reports figures, and numbers whose distribution is of interest, by name."""
        finite = {name: each[np.isfinite(each)] for name, each in distributions.items()}
        with np.errstate(all="ignore"):
            histograms = {
                name: [array.tolist() for array in np.histogram(each, BUCKETS)]
                for name, each in finite.items()
                if each.size and np.isfinite(np.ptp(each))
            }
        self._send(figures=figures, update=update, histograms=histograms)

    def close(self, picture: Path, update: int, patience: Callable[[], float]) -> None:
        """Reports the picture and ends the run; waits at most `patience()` seconds for it."""
        if self._process.poll() is None and not self._lost:
            self._send(picture=str(picture.resolve()), update=update)
            start = time.monotonic()
            while self._process.poll() is None and time.monotonic() - start < patience():
                if self._waiting:
                    self._flush()
                else:
                    self._hang_up()
                time.sleep(0.01)
            if self._process.poll() is None:
                rest = f"send the rest: wandb sync {self._folder}"
                self._warn(
                    f"--wandb: not all was sent in time; {rest}"
                    if self._folder
                    else "--wandb: nothing was sent, since there was no answer in time"
                )
        self.kill()

    def kill(self) -> None:
        """Ends the process and those that it started."""
        self._hang_up()
        if self._process.poll() is None:
            for process in psutil.Process(self._process.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            self._process.kill()
            self._process.wait()
        if self._listener.is_alive():
            self._listener.join()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._temporary.cleanup()

    def _hang_up(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()

    def _hear(self) -> dict[str, str]:
        """What the process says next; nothing where it has ended."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        return json.loads(line) if line else {}

    def _listen(self) -> None:
        while heard := self._hear():
            if "place" in heard:
                self._folder = heard["folder"]
                self._say(in_one_line(f"Weights & Biases: {heard['place']}"))
            else:
                self._give_up(heard["trouble"])

    def _give_up(self, reason: str) -> None:
        if not self._lost:
            self._lost = True
            self._warn(in_one_line(f"--wandb: {reason}: the run goes on without"))

    def _send(self, **message: Any) -> None:
        if not self._lost:
            self._waiting += json.dumps(message).encode() + b"\n"
            self._flush()

    def _flush(self) -> None:
        assert self._process.stdin is not None
        try:
            while self._waiting:
                del self._waiting[: os.write(self._process.stdin.fileno(), self._waiting[:65536])]
        except BlockingIOError:
            if len(self._waiting) > MOST_WAITING:
                self._waiting.clear()
                self._give_up("it takes nothing any more")
        except OSError:
            self._waiting.clear()
            self._give_up("its process has ended")
