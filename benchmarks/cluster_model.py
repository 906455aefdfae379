"""A model of updates on up to 1,440 workers, from costs measured on this machine.

Nodes share tasks out as they do in `es.cluster`: what is simulated calls the same `share`, with
episodes whose seconds are drawn from measured ones, and a master that handles one message at a
time. What master, network and nodes do before and after the episodes is added.
"""

import heapq
import math
import statistics
from typing import NamedTuple

import numpy as np

from benchmarks.cluster_costs import POPULATION, Costs, measure
from es.cluster.agent import REPORT_SECONDS
from es.cluster.sharing import share
from es.noise import FAN, LEAF, WORTH_THREADS

CORES = 32
WORKERS = (1, 32, 128, 512, 1440)
LATENCY = 0.0005  # of a message through Ray, one way: half of a measured round trip
BANDWIDTH = 1.25e9  # bytes per second of a node's network: 10 Gbit/s


class Parts(NamedTuple):
    """The seconds of an update with so many workers, and the messages that rollouts take."""

    ask: float
    rollouts: float
    batch: float
    merge: float
    rank: float
    sum: float
    step: float
    messages: int
    busy: float  # the master, with messages


def rollouts(
    costs: Costs, nodes: int, cores: int, chance: np.random.Generator
) -> tuple[float, int]:
    """Return the seconds until all episodes are reported, and the number of messages."""
    waiting, messages, free, end = POPULATION + 1, 0, 0.0, 0.0
    queued, playing, finished = [0] * nodes, [0] * nodes, [0] * nodes
    limits: list[int | None] = [None] * nodes  # None: it has reported, and waits for an answer
    since = [0.0] * nodes
    events = [(0.0, node, "report", 0) for node in range(nodes)]
    unfinished = [0] * nodes  # as the master knows it
    while events:
        clock, node, what, count = heapq.heappop(events)
        if what == "report":
            unfinished[node] -= count
            idle = sum(max(0, cores - one) for one in unfinished)
            given, rest = share(waiting, cores, unfinished[node], idle, nodes * cores)
            free = max(free, clock) + costs.message + costs.task * (count + given) / 2
            end = max(end, free)
            waiting -= given
            unfinished[node] += given
            if unfinished[node]:
                messages += 1
                # The parameters come first, to one node after the other.
                there = max(free + LATENCY, (node + 1) * 4 * costs.parameters / BANDWIDTH)
                heapq.heappush(events, (there, node, "tasks", given * 10**6 + rest))
            continue
        if what == "tasks":
            queued[node] += count // 10**6
            limits[node], since[node] = count % 10**6, clock
        else:
            playing[node] -= 1
            finished[node] += 1
        while queued[node] and playing[node] < cores:
            queued[node] -= 1
            playing[node] += 1
            heapq.heappush(events, (clock + float(chance.choice(costs.episodes)), node, "done", 0))
        limit = limits[node]
        late = finished[node] and clock - since[node] > REPORT_SECONDS
        if limit is not None and (queued[node] + playing[node] <= limit or late):
            limits[node] = None
            heapq.heappush(events, (clock + LATENCY, node, "report", finished[node]))
            finished[node] = 0
    return end, messages


def one_queue(costs: Costs, workers: int) -> float:
    """Return the seconds of the rollouts if each worker took its next task in no time."""
    chance, free = np.random.default_rng(1), [0.0] * workers
    for seconds in chance.choice(costs.episodes, POPULATION + 1).tolist():
        heapq.heapreplace(free, free[0] + seconds)
    return max(free)


def update(costs: Costs, workers: int, *, nodes_sum: bool = True) -> Parts:
    """Return an update's parts. nodes_sum: whether the nodes sum the noise, or the master."""
    cores, nodes = min(workers, CORES), max(1, workers // CORES)
    seconds, messages = rollouts(costs, nodes, cores, np.random.default_rng(1))
    vector = 4 * costs.parameters / BANDWIDTH
    leaves = math.ceil(POPULATION / 2 / LEAF)
    if nodes_sum:
        sums = math.ceil(leaves / FAN)  # a node sums so many leaves side by side
        seconds_each = math.ceil(FAN / cores) * LEAF * rebuilding(costs, max(1, cores // FAN))
        total, calls = math.ceil(sums / nodes) * (seconds_each + FAN * costs.add) + LATENCY, sums
        one = costs.add + (vector if nodes > 1 else 0)  # to fetch a sum and add it
        while sums > FAN:  # added up on the nodes
            sums = math.ceil(sums / FAN)
            calls += sums
            total += math.ceil(sums / nodes) * FAN * one + LATENCY
        total += sums * one + calls * costs.message + LATENCY
    else:
        total = POPULATION / 2 * rebuilding(costs, cores)
    return Parts(
        ask=costs.ask,
        rollouts=seconds,
        batch=costs.batch,
        merge=costs.merge,
        rank=costs.rank,
        sum=total,
        step=costs.step,
        messages=messages,
        busy=messages * costs.message + (POPULATION + 1) * costs.task,
    )


def rebuilding(costs: Costs, threads: int) -> float:
    """Return the seconds in which so many threads draw, weight and add a noise vector."""
    threads = threads if costs.parameters >= WORTH_THREADS else 1
    return (costs.draw + costs.add) / threads + costs.add


def seconds_of(parts: Parts) -> float:
    """Return the seconds of the whole update."""
    return sum(parts) - parts.messages - parts.busy


def report(arguments: list[str], episodes: int, stretch: float = 1.0) -> None:
    """Print what was measured, efficiency by the number of workers, and the parts of an update.

    stretch: makes the episodes so many times as long as measured.
    """
    costs = measure(arguments, episodes)
    costs = costs._replace(
        episodes=[stretch * each for each in costs.episodes],
        lengths=[int(stretch * each) for each in costs.lengths],
    )
    print(f"`{' '.join(arguments)}`{f', stretched {stretch:g} times' if stretch != 1 else ''}\n")
    print(
        f"P = {costs.parameters}; episodes: {statistics.mean(costs.lengths):.0f} steps "
        f"({min(costs.lengths)} to {max(costs.lengths)}), {statistics.mean(costs.episodes):.4f} s "
        f"(deviation {statistics.stdev(costs.episodes):.4f}, at most {max(costs.episodes):.4f})\n"
    )
    print(
        "| workers | nodes | update, s | efficiency | of the rollouts alone | were nothing but "
        "episodes to cost time | were the noise summed by the master |"
    )
    print("|---|---|---|---|---|---|---|")
    work = (POPULATION + 1) * statistics.mean(costs.episodes)
    for workers in WORKERS:
        parts = update(costs, workers)
        times = (
            seconds_of(parts),
            parts.rollouts,
            one_queue(costs, workers),
            seconds_of(update(costs, workers, nodes_sum=False)),
        )
        shares = " | ".join(f"{work / workers / each:.3f}" for each in times)
        print(f"| {workers} | {max(1, workers // CORES)} | {times[0]:.3f} | {shares} |")
    parts, ideal = update(costs, WORKERS[-1]), work / WORKERS[-1]
    others = ("ask", "batch", "merge", "rank", "sum", "step")
    print(
        f"\nOf an update with {WORKERS[-1]} workers, ms: all at work {1000 * ideal:.0f}, waiting "
        f"for messages and the last episodes {1000 * (parts.rollouts - ideal):.0f}, "
        + ", ".join(f"{name} {1000 * getattr(parts, name):.1f}" for name in others)
        + f"; {parts.messages} messages keep the master busy for {1000 * parts.busy:.0f}.\n"
        f"Measured, us: message {1e6 * costs.message:.0f}, task {1e6 * costs.task:.1f}, draw "
        f"{1e6 * costs.draw:.0f}, add {1e6 * costs.add:.0f}.\n",
        flush=True,
    )
