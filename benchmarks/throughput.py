"""How near rollouts come to the environment alone, and where their time goes.

Every round plays some tasks of a population as a worker does, then the same episodes again from
recorded actions: with the bare environment (the unwrapped Gymnasium environment, or the Atari
emulator without reading its screen); with the environment as rollouts have it; and then the policy
alone on the recorded observations, once more as its torch module. What is left of the time of the
rollouts is the engine's: noise, parameters, the loop.
Several processes do so side by side, each on a core of its own. Medians over the rounds.
"""

import argparse
import json
import multiprocessing
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from benchmarks.harness import processor
from benchmarks.replaying import record, replay, replay_bare, think, think_in_torch
from es.algorithm.statistics import Normalizer
from es.algorithm.strategy import Strategy
from es.config import Config, flag_with_value
from es.envs import make_env
from es.policy import describe, policy_module
from es.rollouts.in_process import InProcessPool
from es.rollouts.player import Player
from es.rollouts.processes import cores, limit_threads
from es.rollouts.rollout import UNPERTURBED, Snapshot, Task, training_tasks
from es.runs.setup import Setup

HEADER = """\
| environment | after updates | steps per episode | processes | bare steps/s | steps/s | ratio \
| us: environment | preprocessing | policy | engine | torch's policy / ours |
|---|---|---|---|---|---|---|---|---|---|---|---|"""
KINDS = ("rollouts", "bare", "environment", "policy", "torch")


class Case(NamedTuple):
    """An environment and the population that is timed: after so many updates, so many episodes.

    settings: of the `Config`, besides the environment.
    """

    name: str
    updates: int
    episodes: int
    settings: Mapping[str, Any] = {}

    def __str__(self) -> str:
        return " ".join([self.name, *map(flag_with_value, self.settings, self.settings.values())])


CASES = (
    Case("CartPole-v1", 0, 40),
    Case("CartPole-v1", 10, 40),
    Case("CartPole-v1", 40, 10),
    Case("Acrobot-v1", 0, 10),
    Case("Taxi-v4", 0, 10),
    Case("HalfCheetah-v5", 0, 4),
    Case("HalfCheetah-v5", 0, 4, {"obs_norm": True}),
    Case("HalfCheetah-v5", 0, 4, {"hidden_sizes": (256, 256)}),
    Case("HalfCheetah-v5", 0, 4, {"net": "benchmarks.eager:MLP"}),
    Case("PongDeterministic-v4", 0, 1),
)


def population(case: Case) -> tuple[Setup, Snapshot, list[Task]]:
    """Return setup, parameters and tasks as they are after a case's updates (seed 1)."""
    setup, theta = describe(Config(env_name=case.name, seed=1, **case.settings), None)
    inputs = setup.normalized_inputs
    statistics = Normalizer(inputs).statistics() if inputs else None
    snapshot = Snapshot(theta, 0.05, statistics)
    strategy = Strategy(theta, Config(n=40, sigma=0.05, lr=0.1, seed=1))
    pool = InProcessPool(setup.recipe)
    tasks = training_tasks(1, 0, [*strategy.ask(), UNPERTURBED], 100_000)
    for update in range(1, case.updates + 1):
        results = pool.evaluate(snapshot, tasks[:-1])
        strategy.tell([result.episode_return for result in results])
        tasks = training_tasks(1, update, [*strategy.ask(), UNPERTURBED], 100_000)
    pool.close()
    return setup, snapshot, tasks


def seconds(function: Callable[..., None], *arguments: Any) -> float:
    """Return the seconds that a call takes."""
    start = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - start


def measure(case: Case, rounds: int, number: int, barrier: Any, results: Any) -> None:
    """Time one process's rounds; send the seconds per step of each kind, a list of dicts."""
    setup, snapshot, tasks = population(case)
    chosen = [tasks[(case.episodes * number + i) % len(tasks)] for i in range(case.episodes)]
    player, bare = Player(setup.recipe), make_env(setup.environment).unwrapped
    bare.reset(seed=0)
    episodes = [record(player, snapshot, task) for task in chosen]
    steps = sum(len(episode.actions) for episode in episodes)
    module = policy_module(setup, snapshot.theta)

    def rollouts() -> None:
        for task in chosen:
            player.play(snapshot, task)

    functions: dict[str, Callable[[], float]] = {
        "rollouts": lambda: seconds(rollouts),
        "bare": lambda: seconds(replay_bare, bare, episodes),
        "environment": lambda: seconds(replay, player.env, episodes),
        "policy": lambda: seconds(think, player.actor, episodes),
        "torch": lambda: seconds(think_in_torch, module, episodes),
    }
    figures: list[dict[str, float]] = []
    for _ in range(rounds + 1):  # the first warms up
        figures.append({})
        for kind in KINDS:
            barrier.wait(timeout=300)
            figures[-1][kind] = functions[kind]() / steps
    results.put((figures[1:], steps / len(episodes)))


def run(case: Case, processes: int, rounds: int) -> dict[str, Any]:
    """Return a case's steps per second of all processes, and the microseconds of one step."""
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(processes), context.Queue()
    started = [
        context.Process(target=measure, args=(case, rounds, number, barrier, results))
        for number in range(processes)
    ]
    for process in started:
        process.start()
    each, lengths = zip(*[results.get(timeout=600) for _ in started], strict=True)
    for process in started:
        process.join()
    # Of a round, all processes together: the sum of their speeds.
    speeds = {
        kind: [sum(1 / figures[i][kind] for figures in each) for i in range(rounds)]
        for kind in KINDS
    }
    step = {
        kind: 1e6 * statistics.median(figure[kind] for figures in each for figure in figures)
        for kind in KINDS
    }
    ratios = [ours / bare for ours, bare in zip(speeds["rollouts"], speeds["bare"], strict=True)]
    return {
        "processor": processor(),
        "environment": str(case),
        "after_updates": case.updates,
        "steps_per_episode": statistics.mean(lengths),
        "processes": processes,
        "bare_steps_per_second": statistics.median(speeds["bare"]),
        "steps_per_second": statistics.median(speeds["rollouts"]),
        "ratio": statistics.median(ratios),
        "us_per_step": {
            "environment": step["bare"],
            "preprocessing": step["environment"] - step["bare"],
            "policy": step["policy"],
            "engine": step["rollouts"] - step["environment"] - step["policy"],
        },
        "torch_to_ours": step["torch"] / step["policy"],
    }


def main() -> None:
    """Print a row per environment and number of processes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    parser.add_argument("--rounds", type=int, default=15)
    names = sorted({case.name for case in CASES})
    parser.add_argument("--env", help="only this environment", choices=names)
    arguments = parser.parse_args()
    limit_threads()  # of the processes started
    if not arguments.json:
        print(f"{processor()}\n\n{HEADER}")
    for case in CASES:
        if arguments.env not in (None, case.name):
            continue
        for processes in sorted({1, cores()}):
            figures = run(case, processes, arguments.rounds)
            if arguments.json:
                print(json.dumps(figures), flush=True)
                continue
            parts = " | ".join(f"{part:.2f}" for part in figures["us_per_step"].values())
            print(
                f"| {case} | {case.updates} | {figures['steps_per_episode']:.0f} | "
                f"{processes} | {figures['bare_steps_per_second']:.0f} | "
                f"{figures['steps_per_second']:.0f} | {figures['ratio']:.2f} | {parts} | "
                f"{figures['torch_to_ours']:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
