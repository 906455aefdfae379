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
from pathlib import Path

RUNS, WORKERS = 5, 41
ROOT = Path(__file__).resolve().parent.parent
PROGRAM = f"""
import time
from es.rollouts.processes import FOR_WORKERS
from es.rollouts.processes import limit_threads, start_forkserver
limit_threads()
import os, sys
os.environ["ES_PRELOAD"] = sys.argv[1]
start_forkserver(FOR_WORKERS)
import psutil
from es.config import Config
from es.rollouts.rollout import Snapshot, Task
from es.rollouts.pool import WorkerPool
from es.policy import make_policy
policy = make_policy(Config(env_name=sys.argv[1], seed=1), None)
pool = WorkerPool(policy.recipe, size=policy.theta.size, members={WORKERS})
processes = pool._processes
while not all(worker.ready for worker in processes.workers.values()):
    for key, _ in processes.selector.select():
        processes.receive(key.data)
seconds = time.time() - psutil.Process().create_time()
tasks = [Task(index, index, 1, index, 50) for index in range({WORKERS})]
pool.evaluate(Snapshot(theta, 0.05), tasks)
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
        process.wait()
        return first, time.perf_counter() - start


def commands(projects: list[Path]) -> None:
    """Print a row per command: medians, and the worst in brackets."""
    print("| command | checkout | first line, s | end, s |\n|---|---|---|---|")
    for name, arguments in COMMANDS.items():
        found: dict[Path, list[tuple[float, float]]] = {project: [] for project in projects}
        for _ in range(RUNS):
            for project, figures in found.items():
                figures.append(timed(project, arguments))
        for project, figures in found.items():
            columns = [
                f"{statistics.median(seconds):.2f} ({max(seconds):.2f})"
                for seconds in zip(*figures, strict=True)
            ]
            print(f"| {name} | {project.name} | {' | '.join(columns)} |", flush=True)


def main() -> None:
    """Print both tables: medians, and the worst in brackets."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--project", type=Path, action="append", default=[ROOT])
    commands(parser.parse_args().project)
    print("\n| environment | seconds | PSS of all workers, MiB |")
    print("|---|---|---|")
    for env in ("CartPole-v1", "HalfCheetah-v5", "PongDeterministic-v4"):
        figures = []
        for _ in range(RUNS):
            with tempfile.TemporaryDirectory() as elsewhere:
                result = subprocess.run(
                    [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})"
                     + PROGRAM, env],
                    cwd=elsewhere, capture_output=True, text=True, check=True,
                )  # fmt: skip
            figures.append([float(figure) for figure in result.stdout.split()])
        seconds, memory = zip(*figures, strict=True)
        print(
            f"| {env} | {statistics.median(seconds):.1f} ({max(seconds):.1f}) | "
            f"{statistics.median(memory):.0f} ({max(memory):.0f}) |",
            flush=True,
        )


if __name__ == "__main__":
    main()
