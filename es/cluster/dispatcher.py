"""Handing out an update's tasks to the nodes of the cluster.

Each node has an agent with a `WorkerPool`, so that it needs few messages per update. Tasks of a
lost node are played on others, which changes no result: an episode depends on its task alone.
"""

import itertools
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from es.algorithm.noise import FAN, LEAF, FloatArray, Weights, tree_sum, weighted_sum
from es.cluster.agent import Agent
from es.cluster.messages import Order, Status, sum_seconds
from es.cluster.nodes import Member, Node, Nodes
from es.cluster.packing import Packed, pack_tasks
from es.cluster.sharing import share
from es.errors import TaskError, in_one_line
from es.rollouts.processes import cores
from es.rollouts.rollout import Snapshot, Task

PATIENCE_SECONDS = 0.25


class Dispatcher:
    """The agents of all nodes. say: shows a line to the user."""

    def __init__(self, order: Order, *, say: Callable[[str], None]) -> None:
        self._say = say
        self._batch = self._again = 0
        actor = ray.remote(Agent)

        def start(node: Node) -> Any:
            count = order.workers if isinstance(order.workers, int) else node.cpus
            options = actor.options(
                num_cpus=min(count, node.cpus),
                max_restarts=0,
                max_task_retries=0,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False),
            )
            return options.remote(order.recipe, count, order.preload, order.settings)

        self._nodes = Nodes(start, timeout=order.patience, say=say)
        self._nodes.refresh()

    @property
    def status(self) -> Status:
        """Return the current status."""
        ready = self._nodes.ready
        workers = sum(member.workers for member in ready)
        return Status(len(ready), workers, sum(len(m.tasks) for m in ready), self._again)

    def play(self, snapshot: Snapshot, tasks: Sequence[Task]) -> Iterator[list[Packed]]:
        """Yield the results of all tasks as they come, or an empty list after PATIENCE_SECONDS.

        Raise TaskError if an episode cannot be played, ClusterError if there is no worker for long.
        """
        self._batch += 1
        self._nodes.begin()
        failed: set[int] = set()
        reference = ray.put(snapshot)
        waiting, left = deque(tasks), len(tasks)
        while left:
            self._nodes.refresh()
            for member in self._nodes.ready:
                if member.call is None:
                    self._hand_out(member, waiting, reference)
            results: list[Packed] = []
            for member, report in self._nodes.answers(PATIENCE_SECONDS):
                if report:
                    for line in report.said:
                        self._say(f"Node {member.node.name}: {line}")
                    for index in report.results.numbers[:, 0].tolist():
                        del member.tasks[index]
                    left -= len(report.results.returns)
                    results.append(report.results)
                    if not report.failure:
                        continue
                    # The node may be at fault (such as too little memory): try another one.
                    if report.failed in failed or len(self._nodes.ready) == 1:
                        raise TaskError(report.failure)
                    failed.add(report.failed)
                    self._nodes.drop(member, in_one_line(report.failure.splitlines()[0]))
                self._again += len(member.tasks)
                waiting.extendleft(reversed(member.tasks.values()))
            yield results

    def sum_noise(
        self, weights: Weights, size: int, fraction: float, abandoned: Callable[[], bool]
    ) -> FloatArray:
        """Return `noise.weighted_sum`, to the bit, summed by the nodes.

        Raise EOFError if nobody waits for it any more, which `abandoned` tells.
        """
        here = partial(weighted_sum, size=size, fraction=fraction, threads=cores())
        free = [member.agent for member in self._nodes.ready if member.call is None]
        if not free:
            return here(weights)
        span = FAN * LEAF  # one node's part
        agents = itertools.cycle(free)
        sums = [
            next(agents).sum_noise.remote(weights[start : start + span], size, fraction)
            for start in range(0, len(weights), span)
        ]
        while len(sums) > FAN:  # nodes add these sums too, so that little is sent here
            sums = [
                next(agents).add_up.remote(*sums[start : start + FAN])
                for start in range(0, len(sums), FAN)
            ]
            span *= FAN
        deadline = time.monotonic() + sum_seconds(weights, size)
        while (
            ray.wait(sums, num_returns=len(sums), timeout=PATIENCE_SECONDS)[1]
            and time.monotonic() < deadline
        ):
            if abandoned():
                raise EOFError
        parts: list[FloatArray] = []
        for number, one in enumerate(sums):
            try:
                parts.append(ray.get(one, timeout=0.0))
            except RayError:  # `Nodes.answers` finds the loss when the node is to play
                parts.append(here(weights[number * span : (number + 1) * span]))
        return tree_sum(parts)

    def close(self) -> None:
        """End all agents."""
        self._nodes.close()

    def _hand_out(self, member: Member, waiting: deque[Task], reference: ray.ObjectRef) -> None:
        """Give a node its next tasks, if there are any for it, and ask for a report."""
        ready = self._nodes.ready
        idle = sum(max(0, each.workers - len(each.tasks)) for each in ready)
        total = sum(each.workers for each in ready)
        count, rest = share(len(waiting), member.workers, len(member.tasks), idle, total)
        if not count and not member.tasks:
            return
        tasks = [waiting.popleft() for _ in range(count)]
        member.tasks |= {task.index: task for task in tasks}
        news = reference if member.batch != self._batch else None
        member.batch = self._batch
        member.ask(member.agent.play, news, pack_tasks(tasks), rest)
