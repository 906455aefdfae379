"""Runs that are killed again and again, and damaged checkpoints.

processes: any process of a run but the master is killed, a hundred times. master: the run itself is
killed at fifty random instants and carried on. damage: two hundred damaged checkpoints are opened
by the program. Each compares with what an undisturbed run leaves, and ends with status 1 where it
differs.
"""

import argparse
import collections
import contextlib
import csv
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.checkpoints import read, same, same_run, timeless
from tests.runs.damage import OWNED, damaged

ROOT = Path(__file__).resolve().parent.parent
KILLED_OFTEN = (
    "--env-name", "Acrobot-v1", "--small-net", "--n", "20", "--sigma", "0.5", "--useAdam",
    "--lr", "0.05", "--obs-norm", "--seed", "1", "--silent", "--max-gradient-updates",
)  # fmt: skip
WRITING_OFTEN = (
    "--env-name", "CartPole-v1", "--small-net", "--n", "4", "--useAdam", "--lr", "0.01",
    "--obs-norm", "--variable-ep-len", "--max-episode-length", "100", "--lr-decay", "0.9999",
    "--eval-every", "7", "--eval-episodes", "2", "--save-every", "100", "--seed", "1",
    "--workers", "2", "--silent", "--max-gradient-updates",
)  # fmt: skip
MARK = "TORTURED_RUN"  # an environment variable
MEMORY = 16 * 2**30  # bytes of address space, of which torch and numba take the most


def command(*arguments: object) -> list[str]:
    """Return a command line of the program."""
    return [sys.executable, str(ROOT / "main.py"), *map(str, arguments)]


def finish(*arguments: object) -> None:
    """Run the program to its end, which must be a good one."""
    subprocess.run(command(*arguments), check=True, stdout=subprocess.DEVNULL)


def helpers(master: int) -> list[tuple[psutil.Process, str]]:
    """Return the processes of a run but its master, and what they are there for.

    Workers outlive the fork server that they come from, and are nobody's children then.
    """
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(MARK) != str(master) or process.pid == master:
                continue
            line = " ".join(process.cmdline())
            if "es.reports.learning_curve" in line:
                role = "learning curve"
            elif "resource_tracker" in line:
                role = "tracker"
            else:
                role = "fork server" if process.ppid() == master else "worker"
            found.append((process, role))
    return found


def torture_processes(folder: Path, kills: int, rng: random.Random) -> bool:
    """Kill any process but the master every now and then."""
    updates = 40 * kills
    disturbed, quiet = folder / "disturbed", folder / "quiet"
    counts: collections.Counter[str] = collections.Counter()
    run = command(*KILLED_OFTEN, updates, "--workers", 4, "--run-dir", disturbed)
    # The shell becomes the program, whose helpers inherit its environment.
    program = subprocess.Popen(
        ["/bin/sh", "-c", f'{MARK}=$$ exec "$@"', "sh", *run], stdout=subprocess.DEVNULL
    )
    while not (disturbed / "latest.safetensors").exists():
        time.sleep(0.1)
    while program.poll() is None:
        time.sleep(rng.uniform(0, 2))
        if victims := helpers(program.pid):
            victim, role = rng.choice(victims)
            with contextlib.suppress(psutil.NoSuchProcess):
                victim.kill()
                counts[role] += 1
    finish(*KILLED_OFTEN, updates, "--workers", 2, "--run-dir", quiet)
    alike = same_run(read(disturbed / "latest.safetensors"), read(quiet / "latest.safetensors"))
    alike = alike and timeless(disturbed) == timeless(quiet)
    share = ", ".join(f"{count} {name}" for name, count in counts.most_common())
    print(f"processes: {counts.total()} kills ({share}) in {updates} updates, status "
          f"{program.returncode}, same as undisturbed: {alike}", flush=True)  # fmt: skip
    return alike and program.returncode == 0 and counts.total() >= kills


def torture_master(folder: Path, kills: int, rng: random.Random) -> bool:
    """Kill the run itself at random instants, from its first imports on, and carry it on."""
    updates = 1000 * kills
    killed, quiet = folder / "killed", folder / "quiet"
    fresh = early = 0
    for _ in range(kills):
        latest = killed / "latest.safetensors"
        start = [*WRITING_OFTEN, updates, "--run-dir", killed]
        again = ["--restore", latest, "--silent"]
        if not latest.exists():
            fresh += 1
            shutil.rmtree(killed, ignore_errors=True)  # or the run would take a number
        program = subprocess.Popen(
            command(*(again if latest.exists() else start)), stdout=subprocess.DEVNULL
        )
        time.sleep(rng.uniform(0, 6))
        early += program.poll() is not None
        program.kill()
        program.wait()
        if latest.exists():
            readable(killed, read(latest).counters.update)
    done = read(killed / "latest.safetensors").counters.update
    finish("--restore", killed / "latest.safetensors", "--silent")
    finish(*WRITING_OFTEN, updates, "--run-dir", quiet)
    alike = all(
        same_run(read(killed / name), read(quiet / name))
        for name in (
            "latest.safetensors",
            "best.safetensors",
            *(f"update-{100 * k}.safetensors" for k in range(1, 10)),
        )
    )
    saved = [sorted(p.name for p in run.glob("update-*")) for run in (killed, quiet)]
    figures = [scalars(run) for run in (killed, quiet)]
    alike = alike and timeless(killed) == timeless(quiet) and saved[0] == saved[1]
    alike = alike and same(*figures)
    print(
        f"master: killed {kills} times ({fresh} of them without a checkpoint yet), the last time "
        f"after {done} of {updates} updates; checkpoints, progress.csv and TensorBoard the same "
        f"as undisturbed: {alike}",
        flush=True,
    )
    return alike and not early


def readable(run: Path, update: int) -> None:
    """Raise an error for what is wrong with the files of a run that was just killed."""
    with (run / "progress.csv").open(newline="") as file:
        updates = [int(row["update"]) for row in csv.DictReader(file) if row["steps_per_second"]]
    assert updates[:update] == list(range(1, update + 1))
    if (run / "best.safetensors").exists():
        read(run / "best.safetensors")


def scalars(run: Path) -> dict[str, list[tuple[int, float]]]:
    """Return what TensorBoard shows, without what depends on the clock."""
    events = EventAccumulator(str(run), size_guidance={"scalars": 0})
    events.Reload()
    return {
        tag: [(event.step, event.value) for event in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
        if not tag.endswith(("wall_seconds", "steps_per_second"))
    }


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
