"""The trainer on a Ray cluster.

overhead: the same population on a `RayPool` and on a `WorkerPool` of this machine, with as many
processes. nodes: a run on two nodes on this machine, of which one is killed and another added.
"""

import argparse
import contextlib
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from es.cluster.connection import LOCAL
from es.cluster.pool import RayPool
from es.rollouts.interface import Pool
from es.rollouts.pool import WorkerPool
from es.rollouts.processes import FOR_WORKERS, PRELOAD, cores, limit_threads, start_forkserver
from es.rollouts.rollout import UNPERTURBED, Snapshot, training_tasks

MAIN = Path(__file__).resolve().parent.parent / "main.py"
CASES = {"PongDeterministic-v4": 40, "Acrobot-v1": 40, "CartPole-v1": 40, "Humanoid-v5": 240}
RUN = (
    "--small-net", "--env-name", "Acrobot-v1", "--n", "400", "--seed", "1", "--lr", "1e-9",
    "--max-gradient-updates", "20",
)  # fmt: skip


def overhead(rounds: int) -> None:
    """Print the ratio of the pools' times over alternating rounds."""
    from es.algorithm.strategy import Strategy
    from es.config import Config
    from es.policy import make_policy

    print("| environment | n | local pool, s | Ray, s | local / Ray, median | lowest | highest |")
    print("|---|---|---|---|---|---|---|")
    for name, n in CASES.items():
        policy = make_policy(Config(env_name=name, seed=1), None)
        snapshot = Snapshot(policy.theta, 0.05)
        settings: dict[str, Any] = {"size": policy.theta.size, "inputs": 0, "workers": cores()}
        with contextlib.ExitStack() as stack:
            silent = lambda line: None  # noqa: E731
            pools: dict[str, Pool] = {
                "local": WorkerPool(policy.recipe, members=n, say=silent, **settings),
                "ray": RayPool(
                    LOCAL,
                    policy.recipe,
                    preload=FOR_WORKERS,
                    variables={PRELOAD: name},
                    say=silent,
                    **settings,
                ),
            }
            for pool in pools.values():
                stack.callback(pool.close)
            times: dict[str, list[float]] = {kind: [] for kind in pools}
            for update in range(rounds + 1):  # the first warms up
                strategy = Strategy(policy.theta, Config(n=n, sigma=0.05, lr=0.1, seed=update))
                tasks = training_tasks(update, 0, [*strategy.ask(), UNPERTURBED], 100_000)
                outcomes = []
                for kind, pool in pools.items():
                    start = time.perf_counter()
                    outcomes.append(pool.evaluate(snapshot, tasks))
                    times[kind].append(time.perf_counter() - start)
                assert outcomes[0] == outcomes[1]
        pairs = zip(times["local"][1:], times["ray"][1:], strict=True)
        ratios = [local / on_ray for local, on_ray in pairs]
        print(
            f"| {name} | {n} | {statistics.median(times['local'][1:]):.3f} | "
            f"{statistics.median(times['ray'][1:]):.3f} | {statistics.median(ratios):.3f} | "
            f"{min(ratios):.3f} | {max(ratios):.3f} |",
            flush=True,
        )


def nodes() -> None:
    """Print what a run loses when one of its two nodes is killed, and when another is added."""
    from tests.checkpoints import read, rows, same_run

    os.environ |= {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": "0" * 64,
    }
    from ray.cluster_utils import Cluster

    with tempfile.TemporaryDirectory() as folder:
        run, undisturbed = Path(folder) / "run", Path(folder) / "undisturbed"
        cluster = Cluster(
            initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False}
        )
        doomed = cluster.add_node(num_cpus=1)
        cluster.add_node(num_cpus=1)
        program = train("--ray", cluster.address, "--run-dir", str(run))
        wait_for_updates(program, run, 4)
        killed = time.time()
        cluster.remove_node(doomed, allow_graceful=False)
        wait_for_updates(program, run, 10)
        print(f"A node is added {time.time() - killed:.1f} s after another was killed.", flush=True)
        cluster.add_node(num_cpus=1)
        status = program.wait()
        cluster.shutdown()
        ends = [0.0, *(float(row["wall_seconds"]) for row in rows(run))]
        updates = (f"{after - before:.2f}" for before, after in itertools.pairwise(ends))
        print(f"Seconds of each update: {' '.join(updates)}")
        assert train("--workers", "2", "--run-dir", str(undisturbed)).wait() == 0
        same = same_run(read(run / "latest.safetensors"), read(undisturbed / "latest.safetensors"))
        print(f"Exit status {status}; same checkpoint as an undisturbed local run: {same}")


def train(*arguments: str) -> subprocess.Popen[bytes]:
    """Start the trainer; its lines say when nodes come and go."""
    return subprocess.Popen([sys.executable, str(MAIN), *RUN, *arguments])


def wait_for_updates(program: subprocess.Popen[bytes], run: Path, count: int) -> None:
    """Wait until a run has reported more than `count` updates."""
    from tests.checkpoints import has_rows

    while not has_rows(run, count):
        assert program.poll() is None
        time.sleep(0.05)


def main() -> None:
    """Run one of the two."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["overhead", "nodes"])
    parser.add_argument("--rounds", type=int, default=9, help="of overhead")
    arguments = parser.parse_args()
    limit_threads()
    if arguments.what == "overhead":
        start_forkserver(FOR_WORKERS)
        overhead(arguments.rounds)
    else:
        nodes()


if __name__ == "__main__":
    main()
