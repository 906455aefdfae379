"""The process that uses Weights & Biases: does what the lines of its standard input say.

It says whether it can be used, then where the run is seen, then what goes wrong, as lines of JSON.
"""

from __future__ import annotations

import json
import os
import secrets
import threading
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from es.runs.directory import write_text

if TYPE_CHECKING:
    import wandb

IDENTITY = "wandb/id.txt"  # in the run's directory, so that a run that is carried on goes on there
INIT_SECONDS = 10.0  # to reach the server, before the run is reported offline
FINISH_SECONDS = 30.0  # after the master has gone


def main() -> None:
    """Reports until standard input ends."""
    orders, replies = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):  # which wandb and its own process would print to, or ask on
        os.dup2(nowhere, stream)
    _say(replies, complaint=_complaint())
    line = orders.readline()
    if not line:
        return
    try:
        run = _begin(replies, **json.loads(line))
        _report(run, orders)
    except Exception as error:  # whatever it is, the run goes on
        _say(replies, trouble=str(error) or type(error).__name__)


def _complaint() -> str:
    """Why it cannot be used."""
    try:
        import wandb
        from wandb.sdk import wandb_setup

        settings = wandb_setup.singleton().settings
        if settings._offline or settings._noop or wandb.login(prompt=False, verify=False):
            return ""
    except Exception as error:
        return _in_words(error)
    return "not logged in; run `wandb login`, or set WANDB_MODE=offline"


def _in_words(error: Exception) -> str:
    """An error of wandb's; of a setting that is wrong, which variable it is."""
    faults = getattr(error, "errors", None)
    if not callable(faults):
        return str(error)
    fault = faults()[0]
    return f"WANDB_{'_'.join(map(str, fault['loc'])).upper()}: {fault['msg']}"


def _begin(replies: IO[str], directory: str, config: dict[str, Any], master: int) -> wandb.Run:
    """Opens the run, offline where it cannot be opened otherwise."""
    import wandb

    home = Path(os.environ.setdefault("WANDB_DIR", directory))
    os.environ.setdefault("WANDB_CACHE_DIR", str(home / "wandb" / "cache"))
    identity = Path(directory) / IDENTITY
    identity.parent.mkdir(exist_ok=True)
    if not identity.exists():
        write_text(identity, os.environ.get("WANDB_RUN_ID") or secrets.token_hex(4))
    settings: dict[str, Any] = {
        "id": identity.read_text().strip(),
        "name": os.environ.get("WANDB_NAME", Path(directory).name),
        "config": config,
        "dir": home,
        "allow_val_change": True,
        "settings": wandb.Settings(
            console="off",
            finish_timeout=FINISH_SECONDS,
            x_stats_pid=master,
            x_transaction_log_flush_interval=1.0,
            init_timeout=float(os.environ.get("WANDB_INIT_TIMEOUT", INIT_SECONDS)),
        ),
    }
    trouble = ""
    try:
        run = wandb.init(resume="allow", **settings)
    except Exception as error:
        trouble = f"{error}; "
        wandb.teardown()  # which has the run's id still
        run = wandb.init(mode="offline", **settings)
    if run.disabled:
        place = "disabled"
    elif run.offline:
        place = f"{trouble}offline; send it later: wandb sync {Path(run.dir).parent}"
    else:
        place = run.url or "online"
    _say(replies, place=place, folder=str(Path(run.dir).parent))
    return run


def _report(run: wandb.Run, orders: IO[str]) -> None:
    """Logs what each line says. A picture is the last; without one, the master was killed."""
    import wandb

    status = 1
    for line in orders:
        order = json.loads(line)
        if "picture" in order:
            status = 0
            if Path(order["picture"]).exists():
                picture = {"learning_curve": wandb.Image(order["picture"])}
                run.log(picture, step=order["update"])
            continue
        histograms = {
            name: wandb.Histogram(np_histogram=(counts, edges))
            for name, (counts, edges) in order["histograms"].items()
        }
        run.log({**order["figures"], **histograms}, step=order["update"])
    timer = threading.Timer(FINISH_SECONDS, os._exit, (1,))
    timer.daemon = True
    timer.start()
    run.finish(exit_code=status)


def _say(replies: IO[str], **words: str) -> None:
    with suppress(OSError):  # the master may be gone
        print(json.dumps(words), file=replies, flush=True)


if __name__ == "__main__":
    main()
