"""Start-up of the default 41 workers: seconds until all are ready, and the memory they hold.

Counted from the start of the interpreter, imports included, from a folder that is not the
project's. Memory is the sum of the workers' proportional set sizes (Linux), after a batch.
"""

import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

RUNS, WORKERS = 5, 41
ROOT = Path(__file__).resolve().parent.parent
PROGRAM = f"""
import time
from es.program import FOR_WORKERS
from es.rollouts.processes import limit_threads, start_forkserver
limit_threads()
import os, sys
os.environ["ES_PRELOAD"] = sys.argv[1]
start_forkserver(FOR_WORKERS)
import psutil
from es.config import Config
from es.rollouts.rollout import Snapshot, Task
from es.rollouts.pool import WorkerPool
from es.policy import describe
setup, theta = describe(Config(env_name=sys.argv[1], seed=1), None)
pool = WorkerPool(setup.recipe, size=theta.size, members={WORKERS})
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


def main() -> None:
    """Prints a row per environment: medians, and the worst in brackets."""
    print("| environment | seconds | PSS of all workers, MiB |")
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
