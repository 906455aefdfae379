"""The same population on Ray and on the local pool, with as many processes of this machine."""

import argparse
import contextlib
import statistics
import time
from typing import Any

from benchmarks.learn import cells
from es.algorithm.strategy import Strategy
from es.cluster.connection import LOCAL
from es.cluster.pool import open_ray
from es.config import Config
from es.policy import make_policy
from es.rollouts.pool import WorkerPool
from es.rollouts.processes import FOR_WORKERS, PRELOAD, cores, limit_threads, start_forkserver
from es.rollouts.tasks import UNPERTURBED, Pool, Snapshot, training_tasks

CASES = {"PongDeterministic-v4": 40, "Acrobot-v1": 40, "CartPole-v1": 40, "Humanoid-v5": 240}
HEADER = """\
| environment | n | local pool, s | Ray, s | local / Ray, median | lowest | highest |
|---|---|---|---|---|---|---|"""


def measure(name: str, n: int, rounds: int) -> str:
    """Return an environment's row: medians over alternating rounds."""
    policy = make_policy(Config(env_name=name, seed=1), None)
    snapshot = Snapshot(policy.theta, 0.05)
    settings: dict[str, Any] = {"size": policy.theta.size, "workers": cores()}
    times: dict[str, list[float]] = {"local": [], "ray": []}
    with contextlib.ExitStack() as stack:
        local = WorkerPool(policy.recipe, **settings)
        stack.callback(local.close)
        variables = {PRELOAD: name}
        ray = open_ray(LOCAL, policy.recipe, preload=FOR_WORKERS, variables=variables, **settings)
        stack.callback(ray.close)
        pools: dict[str, Pool] = {"local": local, "ray": ray}
        for update in range(rounds + 1):  # the first warms up
            strategy = Strategy(policy.theta, Config(n=n, sigma=0.05, lr=0.1, seed=update))
            tasks = training_tasks(update, 0, [*strategy.ask(), UNPERTURBED], 100_000)
            outcomes = []
            for kind, pool in pools.items():
                start = time.perf_counter()
                outcomes.append(pool.evaluate(snapshot, tasks)["episode_return"])
                times[kind].append(time.perf_counter() - start)
            assert (outcomes[0] == outcomes[1]).all()
    local_times, ray_times = times["local"][1:], times["ray"][1:]
    ratios = [one / other for one, other in zip(local_times, ray_times, strict=True)]
    figures = (
        *map(statistics.median, (local_times, ray_times, ratios)), min(ratios), max(ratios)
    )  # fmt: skip
    return cells(name, str(n), *(f"{figure:.3f}" for figure in figures))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    start_forkserver(FOR_WORKERS)
    print(HEADER)
    for name, n in CASES.items():
        print(measure(name, n, rounds), flush=True)


if __name__ == "__main__":
    limit_threads()
    main()
