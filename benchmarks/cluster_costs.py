"""What an update of a large population costs its master, and its episodes: measured here."""

import copy
import multiprocessing
import pickle
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from es.algorithm.normalizer import Normalizer
from es.algorithm.population import group_by_perturbation
from es.algorithm.strategy import Strategy
from es.cluster.agent import Report
from es.cluster.connection import LOCAL, connect, disconnect
from es.cluster.packing import Integers, pack_results, pack_tasks, unpack_tasks
from es.config import Config, sources
from es.model import unflatten
from es.noise import draw
from es.policy import describe
from es.reports.record import describe_population
from es.rollouts.player import Player
from es.rollouts.rollout import UNPERTURBED, Result, Snapshot, Task, training_tasks
from es.runs.checkpoint import Checkpoint, load
from es.runs.restored import restored_normalizer, settings_of

POPULATION = 14_400
CONNECTIONS = 7  # to Ray, each in a process of its own, over which messages are measured


class Costs(NamedTuple):
    """Seconds, as measured. parameters: P.

    episodes: of the sampled ones. lengths: their steps. message, task: of the master, for a message
    and for each task in it. draw, add: of P random numbers, and of adding up P numbers. ask, batch,
    merge, rank, step: of the master, once per update.
    """

    parameters: int
    episodes: list[float]
    lengths: list[int]
    message: float
    task: float
    draw: float
    add: float
    ask: float
    batch: float
    merge: float
    rank: float
    step: float


def median_seconds(function: Callable[[], Any], rounds: int = 7) -> float:
    """Return the seconds that a call takes."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def measure(arguments: list[str], episodes: int) -> Costs:
    """Return the costs of a run with these flags, which may restore a checkpoint."""
    config = sources.parse(arguments)
    restored = load(config.restore) if config.restore else None
    if isinstance(restored, Checkpoint):
        config = settings_of(restored)
    setup, theta = describe(config, restored)
    ours = restored if isinstance(restored, Checkpoint) else None
    normalizer = restored_normalizer(config, setup.normalized_inputs, ours)
    cap = ours.counters.max_episode_length if ours else config.max_episode_length
    strategy = strategy_of(config, theta)
    tasks = training_tasks(1, 1, [*strategy.ask(), UNPERTURBED], cap)
    statistics_ = normalizer.statistics() if normalizer else None
    snapshot = Snapshot(theta, config.sigma, statistics_)
    player, results, seconds = Player(setup.recipe), list[Result](), list[float]()
    for task in tasks[: episodes + 1]:  # the first warms up
        start = time.perf_counter()
        results.append(player.play(snapshot, task))
        seconds.append(time.perf_counter() - start)
    many = [
        results[i % len(results)]._replace(index=i, episode_return=i * 0.1)
        for i in range(POPULATION + 1)
    ]
    batch = group_by_perturbation(many, 1)
    inputs = [setup.normalized_inputs] * CONNECTIONS
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as processes:
        measured = processes.map(message_costs, inputs, chunksize=1)
    message, task_seconds = (statistics.median(costs) for costs in zip(*measured, strict=True))
    noise = np.zeros_like(theta)

    def step() -> None:
        strategy.tell(batch.fitness)
        copy.deepcopy(strategy.optimizer.moments)
        unflatten(setup.network, strategy.theta)

    rank = median_seconds(lambda: strategy._weights(np.asarray(batch.fitness)))
    return Costs(
        parameters=theta.size,
        episodes=seconds[1:],
        lengths=[result.steps for result in results[1:]],
        message=message,
        task=task_seconds,
        draw=median_seconds(lambda: draw(1, noise), 50),
        add=median_seconds(lambda: np.add(noise, theta, out=noise), 50),
        ask=median_seconds(lambda: training_tasks(1, 1, [*strategy.ask(), UNPERTURBED], cap)),
        batch=median_seconds(lambda: describe_population(group_by_perturbation(many, 1))),
        merge=median_seconds(lambda: Normalizer(setup.normalized_inputs).merge(many))
        if normalizer
        else 0.0,
        rank=rank,
        step=max(0.0, median_seconds(step) - rank),
    )


def strategy_of(config: Config, theta: Any) -> Strategy:
    """Return a strategy of the full population, whose noise sums cost nothing."""
    return Strategy(
        theta.copy(),
        n=POPULATION,
        sigma=config.sigma,
        lr=1e-6,
        optimizer_name=config.optimizer_name,
        shaping=config.shaping,
        sum_noise=lambda weights, size, fraction: np.ones(size, np.float32),
    )


class Echo:
    """An agent that plays nothing."""

    def play(self, tasks: Integers, inputs: int) -> Report:
        """Return a report of tasks as if they were played, with sums of so many observations."""
        sums = np.ones((2, inputs)) if inputs else None
        played = [Result(task.index, 1.0, 1, sums) for task in unpack_tasks(tasks)]
        return Report(pack_results(played), 1, [])


def message_costs(inputs: int) -> tuple[float, float]:
    """Return the processor time that a message and a task in it cost the master."""
    folder = tempfile.mkdtemp(prefix="ray-")
    try:
        connect(LOCAL, folder, cpus=1, variables={})
        import ray

        actor: Any = ray.remote(Echo)
        echo, times = actor.remote(), dict[int, float]()
        for count in (1, 300):
            tasks = [Task(index, 2**30, 1, 2**30, 10**5) for index in range(count)]
            rounds: list[float] = []
            for _ in range(60):
                start = time.thread_time()
                call = echo.play.remote(pack_tasks(tasks), inputs)
                submitted = time.thread_time() - start
                ray.wait([call])
                start = time.thread_time()
                report = ray.get(call)
                report.results.numbers[:, 0].tolist()
                pickle.dumps(report.results)  # for the master's own process
                rounds.append(submitted + time.thread_time() - start)
            times[count] = statistics.median(rounds[10:])
        return times[1], (times[300] - times[1]) / 299
    finally:
        disconnect(folder)
