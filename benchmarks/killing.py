"""Runs that are killed again and again, and what they leave."""

import collections
import contextlib
import csv
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import psutil
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.checkpoints import read, same, same_run, timeless

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
