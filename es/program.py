"""Code that all command lines share: errors in one line, and streams that may fail."""

import contextlib
import io
import os
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from es.errors import RunError
from es.interrupts import Interrupts

FOR_WORKERS = ("es.policy", "es.environments.preload")  # modules that all workers need
PROJECT = Path(__file__).resolve().parent.parent  # the folder that holds the package
IN_CHECKOUT = PROJECT.name not in ("site-packages", "dist-packages")


def search_last() -> None:
    """Search the current folder for modules after all installed ones.

    So `--env-name my_module:MyEnv-v0` finds a module there, and a `random.py` there hides none. Do
    not search a checkout's folder: the names of its doors, `model` and `envs`, are common ones.
    """
    if IN_CHECKOUT:
        sys.path[:] = [folder for folder in sys.path if folder != str(PROJECT)]
    with contextlib.suppress(OSError):  # the folder is gone
        sys.path.append(os.getcwd())


def program(tool: str) -> list[str]:
    """Return the words that start a tool: main, compare or sweep, as this one was started."""
    started = Path(sys.argv[0])
    if started.suffix == ".py" and started.name != "__main__.py":
        # The shell's 'python' may be another than that of a virtual environment in this folder.
        python = os.path.relpath(sys.executable)
        python = "python" if python.startswith(os.pardir) else python
        return [python, str(started.with_name(f"{tool}.py"))]
    words = [started.name] if started.suffix != ".py" else ["python", "-m", "es"]
    return words if tool == "main" else [*words, tool]


def command(tool: str, *arguments: object) -> str:
    """Return the shell's command line that starts a tool with arguments."""
    return shlex.join([*program(tool), *map(str, arguments)])


def execute(run: Callable[[Interrupts], int]) -> int:
    """Run a program, which may raise RunError; return the exit status."""
    if sys.stdout is None:  # closed by whoever started the program
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (for as long as the program runs)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # an ASCII locale shows ? for other characters
    complaint, interrupts = "", Interrupts()
    try:
        with interrupts:
            status = run(interrupts)
    except RunError as error:
        complaint, status = f"error: {error}\n", error.status
    except ModuleNotFoundError as error:
        complaint, status = f"{not_installed(error)}\n", 1
    except BrokenPipeError:  # nobody reads the output any more, as after `| head`
        status = 128 + (interrupts.received or signal.SIGPIPE)
    except OSError as error:  # such as a full disk
        complaint = f"error: {error}\n"
        status = 128 + interrupts.received if interrupts.received else 1
    for stream, last_words in ((sys.stdout, ""), (sys.stderr, complaint)):
        try:
            print(last_words, end="", file=stream, flush=True)
        except OSError:  # drop the text, or Python would print an error at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return status


def not_installed(error: ModuleNotFoundError) -> str:
    """Return what to tell a user whose Python lacks a library."""
    return (
        f"error: {error.name} is not installed for {sys.executable}: activate the virtual "
        "environment (source .venv/bin/activate), or pip install -r requirements.txt"
    )
