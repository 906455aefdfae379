"""Reports to Weights & Biases, from a thread, so that a slow network does not delay the run."""

import atexit
import contextlib
import io
import os
import queue
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from es.errors import UsageError, how_to_install, in_one_line
from es.reports.record import Distributions, Figures
from es.rollouts.processes import end_now
from es.run import write_text

PROJECT = "evolution-strategies"
IDENTITY = "wandb/id.txt"  # in the run's directory, so that a resumed run continues there
INIT_SECONDS = 10.0  # to reach the server, before the run is reported offline
FINISH_SECONDS = 30.0  # to send the rest after the program was killed
MOST_WAITING = 10_000  # reports that wandb has not taken yet
BUCKETS = 32


class WandbReporter:
    """Report a run. Raise UsageError if wandb cannot be used.

    The calling program may use wandb for a run of its own. It shares wandb's service process with
    this one, so nothing here ends that process.

    say: prints where the run can be seen. warn: prints what goes wrong, which never ends the run.
    """

    def __init__(self, say: Callable[[str], None], warn: Callable[[str], None]) -> None:
        self._wandb = _import_wandb()
        self._say, self._warn = say, warn
        self._jobs: queue.Queue[Callable[[], object] | None] = queue.Queue(MOST_WAITING)
        self._thread = threading.Thread(target=self._work, name="wandb", daemon=True)
        self._run: Any = None
        self._sync = "wandb sync"
        self._lost = False

    def begin(self, directory: Path, config: Mapping[str, Any]) -> None:
        """Open the run of this directory, new or resumed. config: its settings."""
        self._put(partial(self._init, directory.resolve(), config))
        self._thread.start()

    def add(self, step: int, figures: Figures, distributions: Distributions) -> None:
        """Report figures and distributions by name."""
        self._put(partial(self._log, step, figures, distributions))

    def close(self, picture: Path, step: int, patience: Callable[[], float]) -> None:
        """Report the picture and end the run; wait at most `patience()` seconds for it."""
        self._put(partial(self._finish, picture, step))
        self._put(None)
        start = time.monotonic()
        while self._thread.is_alive() and time.monotonic() - start < patience():
            self._thread.join(0.02)
        if self._thread.is_alive():
            unsent, rest = "nothing", ""
            if self._run:
                unsent, rest = "not all", f"; send the rest: {self._sync_command()}"
            self._give_up(f"--wandb: {unsent} was sent in time{rest}")

    def _put(self, job: Callable[[], object] | None) -> None:
        try:
            if not self._lost:
                self._jobs.put_nowait(job)
        except queue.Full:
            self._give_up("--wandb: it takes nothing any more: the run goes on without")

    def _work(self) -> None:
        try:
            while job := self._jobs.get():
                job()
        except Exception as error:  # whatever it is, the run goes on
            reason = str(error) or type(error).__name__
            self._give_up(f"--wandb: {reason}: the run goes on without")

    def _give_up(self, warning: str) -> None:
        if not self._lost:
            self._lost = True
            # Called before wandb's own function, which waits without limit for its process.
            atexit.register(end_now)
            self._warn(in_one_line(warning))

    def _init(self, directory: Path, config: Mapping[str, Any]) -> None:
        identity = directory / IDENTITY
        identity.parent.mkdir(exist_ok=True)
        if not identity.exists():
            theirs = self._wandb.run is not None  # a run of the calling program has that id
            given = None if theirs else os.environ.get("WANDB_RUN_ID")
            write_text(identity, given or secrets.token_hex(4))
        own_id = identity.read_text().strip()
        init = partial(
            self._wandb.init,
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            resume="allow",
            reinit="create_new",
            name=os.environ.get("WANDB_NAME", directory.name),
            dir=os.environ.get("WANDB_DIR", directory),
            config=dict(config),
            allow_val_change=True,
            settings=self._wandb.Settings(
                silent=True,
                console="off",
                init_timeout=float(os.environ.get("WANDB_INIT_TIMEOUT", INIT_SECONDS)),
                finish_timeout=FINISH_SECONDS,
                x_transaction_log_flush_interval=1.0,
            ),
        )
        trouble = ""
        try:
            self._run = init(id=own_id)
        except Exception as error:
            if self._lost:  # the program is ending
                raise
            trouble = f"{error}; "
            # wandb's process keeps the id in use.
            self._run = init(id=secrets.token_hex(4), mode="offline")
            self._sync += f" --id {own_id}"
        if self._run.disabled:
            place = "disabled"
        elif self._run.offline:
            place = f"{trouble}offline; send it later: {self._sync_command()}"
        else:
            place = self._run.url
        if not self._lost:
            self._say(in_one_line(f"Weights & Biases: {place}"))

    def _sync_command(self) -> str:
        return f"{self._sync} {Path(self._run.dir).parent}"

    def _log(self, step: int, figures: Figures, distributions: Distributions) -> None:
        histograms = {
            name: self._wandb.Histogram(numbers.tolist(), num_bins=BUCKETS)
            for name, numbers in distributions.items()
        }
        self._run.log({**figures, **histograms}, step=step)

    def _finish(self, picture: Path, step: int) -> None:
        if picture.exists():
            self._run.log({"learning_curve": self._wandb.Image(str(picture))}, step=step)
        self._run.finish()


def _import_wandb() -> Any:
    complaint = "not logged in; run `wandb login`, or set WANDB_MODE=offline"
    try:
        import wandb
        from wandb.sdk import wandb_setup

        settings = wandb_setup.singleton().settings
        if settings._offline or settings._noop or _logged_in(wandb, settings):
            return wandb
    except ImportError:
        complaint = f"wandb is not installed; {how_to_install('wandb', 'requirements-extra.txt')}"
    except Exception as error:
        complaint = str(error)
        if hasattr(error, "errors"):  # of a wrong setting: name its variable
            fault = error.errors()[0]
            complaint = f"WANDB_{'_'.join(map(str, fault['loc'])).upper()}: {fault['msg']}"
    raise UsageError(f"--wandb: {complaint}")


def _logged_in(wandb: Any, settings: Any) -> bool:
    """Return whether wandb has a key, without its messages, and a wait for the user's name."""
    silent, settings.silent = settings.silent, True
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            return bool(wandb.login(prompt=False, verify=False))
    finally:
        settings.silent = silent
