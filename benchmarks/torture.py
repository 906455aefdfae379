"""Runs that are killed again and again, and damaged checkpoints.

processes: any process of a run but the master is killed, a hundred times. master: the run itself is
killed at fifty random instants and carried on. damage: two hundred damaged checkpoints are opened
by the program. Each compares with what an undisturbed run leaves, and ends with status 1 where it
differs.
"""

import argparse
import collections
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.killing import WRITING_OFTEN, command, finish, torture_master, torture_processes
from tests.damage import OWNED, damaged

MEMORY = 16 * 2**30  # bytes of address space, of which torch and numba take the most


def torture_damage(folder: Path, files: int, rng: random.Random) -> bool:
    """Open damaged checkpoints with the program, which has limited memory and time."""
    finish(*WRITING_OFTEN, 10, "--run-dir", folder / "good")
    good = (folder / "good" / "latest.safetensors").read_bytes()
    outcomes: collections.Counter[str] = collections.Counter()

    def open_it(number: int) -> tuple[str, float, float]:
        place = folder / str(number)
        place.mkdir()
        _, content = damaged(good, number)
        (place / "damaged.safetensors").write_bytes(content)
        flags: list[object] = ["--restore", place / "damaged.safetensors", "--silent"]
        if number % 2:
            flags += ["--test", "--no-render", "--episodes", 1]
        else:
            flags += ["--workers", 0, "--run-dir", place / "run", "--max-gradient-updates", 12]
        start = time.monotonic()
        with (place / "err").open("w") as errors:
            program = subprocess.Popen(
                command(*flags), cwd=place, stdout=subprocess.DEVNULL, stderr=errors
            )
            resource.prlimit(program.pid, resource.RLIMIT_AS, (MEMORY, MEMORY))
            watchdog = threading.Timer(60, program.kill)
            watchdog.start()
            _, status, usage = os.wait4(program.pid, 0)
            program.returncode = os.waitstatus_to_exitcode(status)
            watchdog.cancel()
        code, err = program.returncode, (place / "err").read_text()
        if (place / OWNED).exists():
            outcome = "ran code"
        elif code == -signal.SIGKILL:
            outcome = "hung"
        elif code == 2 and err.startswith("error: ") and err.count("\n") == 1:
            outcome = "one line"
        else:
            outcome = "loaded" if (code, err) == (0, "") else f"{number}: {code} {err[-300:]!r}"
        return outcome, time.monotonic() - start, usage.ru_maxrss / 2**10

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(open_it, range(files)))
    outcomes.update(outcome for outcome, _, _ in results)
    print(
        f"damage: {files} files: {dict(outcomes)}; at most "
        f"{max(seconds for _, seconds, _ in results):.1f} s and "
        f"{max(memory for _, _, memory in results):.0f} MiB resident",
        flush=True,
    )
    return {*outcomes} <= {"one line", "loaded"}


TORTURES: dict[str, tuple[Callable[[Path, int, random.Random], bool], int]] = {
    "processes": (torture_processes, 100),
    "master": (torture_master, 50),
    "damage": (torture_damage, 200),
}


def main() -> None:
    """Print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("which", nargs="*", default=list(TORTURES), help="; ".join(TORTURES))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, help="instead of 100 kills, 50 kills, 200 files")
    given = parser.parse_args()
    good = True
    for name in given.which:
        torture, count = TORTURES[name]
        with tempfile.TemporaryDirectory() as folder:
            good &= torture(Path(folder), given.count or count, random.Random(given.seed))  # noqa: S311
    sys.exit(not good)


if __name__ == "__main__":
    main()
