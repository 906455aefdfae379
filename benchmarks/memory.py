"""What a long run takes after 500 and after 5,000 updates: memory, open files, processes.

Memory of the master, of its workers with the fork server (shared pages count in each of them), and
of the process that draws the learning curve.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parent.parent
EARLY, LATE = 500, 5000
SAMPLES = 20


def measure(master: psutil.Process) -> dict[str, float]:
    """Return the megabytes now, by role, and what else could grow."""
    children = master.children(recursive=True)
    painters = [child for child in children if "es.reports.learning_curve" in child.cmdline()]
    others = [child for child in children if child not in painters]
    groups = {"master": [master], "workers": others, "learning curve": painters}
    everyone = [master, *children]
    return {
        f"{role}, resident MiB": sum(process.memory_info().rss for process in group) / 2**20
        for role, group in groups.items()
    } | {
        "open files": sum(process.num_fds() for process in everyone),
        "threads": sum(process.num_threads() for process in everyone),
        "processes": len(everyone),
    }


def updates(progress: Path) -> int:
    """Return the number of updates that a run has reported."""
    return max(0, progress.read_bytes().count(b"\n") - 1) if progress.exists() else 0


def sample(master: psutil.Process, progress: Path, after: int) -> dict[str, float]:
    """Return the medians of some samples from an update on."""
    while updates(progress) < after:
        if not master.is_running() or master.status() == psutil.STATUS_ZOMBIE:
            sys.exit("the run has ended early")
        time.sleep(0.05)
    samples = []
    for _ in range(SAMPLES):
        samples.append(measure(master))
        time.sleep(0.1)
    return {role: statistics.median(each[role] for each in samples) for role in samples[0]}


def main() -> None:
    """Print a row per role."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", default="auto")
    workers = parser.parse_args().workers
    with tempfile.TemporaryDirectory() as directory:
        run = Path(directory) / "run"
        program = subprocess.Popen(
            [
                sys.executable, str(ROOT / "main.py"), "--small-net", "--env-name", "CartPole-v1",
                "--seed", "1", "--workers", workers, "--run-dir", str(run), "--silent",
                "--max-gradient-updates", str(LATE + EARLY),
            ],
        )  # fmt: skip
        try:
            master = psutil.Process(program.pid)
            early = sample(master, run / "progress.csv", EARLY)
            late = sample(master, run / "progress.csv", LATE)
        finally:
            program.terminate()
            program.wait()
    print(f"| | after {EARLY} | after {LATE} | change |\n|---|---|---|---|")
    for role, before in early.items():
        change = f"{100 * (late[role] / before - 1):+.1f} %"
        print(f"| {role} | {before:.0f} | {late[role]:.0f} | {change} |")


if __name__ == "__main__":
    main()
