"""Start-up: whole commands that do little, and the default 41 workers with their memory.

Seconds count from the start of the interpreter, imports included, in a folder that is not the
project's. Memory is the sum of the workers' proportional set sizes (Linux) after a batch.
--project FOLDER runs the commands of another checkout beside those of this one.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

RUNS, WORKERS = 5, 41
ROOT = Path(__file__).resolve().parent.parent
PROGRAM = f"""
import time
from es.rollouts.processes import FOR_WORKERS, limit_threads, start_forkserver
limit_threads()
import os, sys
os.environ["ES_PRELOAD"] = sys.argv[1]
start_forkserver(FOR_WORKERS)
import psutil
from es.config import Config
from es.rollouts.tasks import Snapshot, make_tasks
from es.rollouts.pool import WorkerPool
from es.policy import make_policy
policy = make_policy(Config(env_name=sys.argv[1], seed=1), None)
pool = WorkerPool(policy.recipe, size=policy.theta.size, workers={WORKERS})
while not all(worker.ready for worker in pool._workers.values()):
    pool.collect()
seconds = time.time() - psutil.Process().create_time()
tasks = make_tasks([(index, 1) for index in range({WORKERS})], range({WORKERS}), 50)
pool.evaluate(Snapshot(policy.theta, 0.05), tasks)
memory = sum(psutil.Process(pid).memory_full_info().pss for pid in pool.pids)
pool.close()
print(seconds, memory / 2**20)
"""


CARTPOLE = ("--config", str(ROOT / "configs/CartPole-v1.toml"), "--seed", "0")
COMMANDS = {
    "CartPole solved, --workers auto": (*CARTPOLE, "--workers", "auto"),
    "CartPole solved, 41 workers": (*CARTPOLE, "--workers", "41"),
    "--test --no-render --episodes 1": (
        "--test", "--no-render", "--episodes", "1",
        "--restore", str(ROOT / "trained/CartPole-v1.safetensors"),
    ),
    "--help": ("--help",),
}  # fmt: skip


def timed(project: Path, arguments: tuple[str, ...]) -> tuple[float, float]:
    """Return the seconds until the first line of a command, and until it has ended."""
    with tempfile.TemporaryDirectory() as elsewhere:
        start = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, str(project / "main.py"), *arguments],
            cwd=elsewhere, stdout=subprocess.PIPE,
        )  # fmt: skip
        assert process.stdout is not None
        process.stdout.readline()
        first = time.perf_counter() - start
        process.stdout.read()
        assert process.wait() == 0
        return first, time.perf_counter() - start


def ready(env: str) -> list[float]:
    """Return the seconds until all workers are ready, and their memory in MiB."""
    program = f"import sys; sys.path.insert(0, {str(ROOT)!r}){PROGRAM}"
    command = [sys.executable, "-c", program, env]
    with tempfile.TemporaryDirectory() as elsewhere:
        result = subprocess.run(command, cwd=elsewhere, capture_output=True, text=True, check=True)
    return [float(figure) for figure in result.stdout.split()]


def summary(figures: Sequence[Sequence[float]], *digits: int) -> str:
    """Return two columns of a row: medians, and the worst in brackets."""
    columns = zip(zip(*figures, strict=True), digits, strict=True)
    return " | ".join(
        f"{statistics.median(values):.{digit}f} ({max(values):.{digit}f})"
        for values, digit in columns
    )


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--project", type=Path, action="append", default=[ROOT])
    projects = parser.parse_args().project
    print("| command | checkout | first line, s | end, s |\n|---|---|---|---|")
    for name, arguments in COMMANDS.items():
        rounds = [[timed(project, arguments) for project in projects] for _ in range(RUNS)]
        for project, figures in zip(projects, zip(*rounds, strict=True), strict=True):
            print(f"| {name} | {project.name} | {summary(figures, 2, 2)} |", flush=True)
    print("\n| environment | seconds | PSS of all workers, MiB |\n|---|---|---|")
    for env in ("CartPole-v1", "HalfCheetah-v5", "PongDeterministic-v4"):
        print(f"| {env} | {summary([ready(env) for _ in range(RUNS)], 1, 0)} |", flush=True)


if __name__ == "__main__":
    main()
