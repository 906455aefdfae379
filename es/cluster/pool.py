"""The pool on a Ray cluster: an agent on each node, with its own worker processes.

Ray ends a process that uses it when that process's node is lost, and changes its signals, threads
and standard error. So `open_ray` runs a `RayPool` in a process of its own. Tasks of a lost node
are played on others, which changes no result: an episode depends on its task alone.
"""

from __future__ import annotations

import importlib.util
import pickle
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from es.checkpoint import versions
from es.cluster.agent import Agent, Report
from es.cluster.connection import LOCAL, connect, disconnect
from es.cluster.remote import RemotePool
from es.errors import ClusterError, UsageError, counted, how_to_install, in_one_line
from es.rollouts.processes import cores
from es.rollouts.tasks import Progress, Recipe, Results, Snapshot, Tasks

if TYPE_CHECKING:
    from ray.exceptions import RayError

WAKE_SECONDS = 0.25
WATCH_SECONDS = 0.5  # between looks at the list of nodes
FRESH_SECONDS = 5.0  # no agent is started from an older list of nodes
RETRY_SECONDS = 5.0  # before a node without an agent is tried again
CLOSE_SECONDS = 1.0  # for idle agents to end their workers


def open_ray(
    address: str,
    recipe: Recipe,
    *,
    patience: float = 120.0,
    say: Callable[[str], None] = print,
    **settings: Any,
) -> RemotePool:
    """Return a `RayPool` in a process of its own.

    patience: seconds without a worker or a connection, after which ClusterError is raised.
    settings: further arguments of the `RayPool`. Raise UsageError if Ray is not installed, or if
    there is no cluster at the address.
    """
    if importlib.util.find_spec("ray") is None:
        remedy = how_to_install("ray", "requirements-ray.txt")
        raise UsageError(f"--ray {address}: Ray is not installed; {remedy}")
    pickled = pickle.dumps(recipe)  # so that only agents import its modules
    make = partial(RayPool, address, pickled, patience=patience, **settings)
    return RemotePool(make, patience=patience, say=say)


class Node:
    """A living node of the cluster with its agent. name: for the user.

    workers: 0 until one is ready. tasks: the indexes of those that it has not reported. call: the
    unfinished call of its agent. batch: the last one that it began.
    """

    def __init__(self, node_id: str, name: str, cpus: int) -> None:
        self.id, self.name, self.cpus = node_id, name, cpus
        self.agent: Any = None
        self.workers = self.batch = 0
        self.tasks: set[int] = set()
        self.call: Any = None


class RayPool:
    """Workers on every node of the cluster at `address`.

    recipe: pickled. workers: processes on each node; None: one per CPU. patience: raise
    ClusterError after so many seconds without any worker. preload, variables: modules and
    environment variables for the processes that workers are forked from. settings: further
    arguments of the nodes' `WorkerPool`. Raise UsageError if there is no cluster.
    """

    def __init__(
        self,
        address: str,
        recipe: bytes,
        *,
        workers: int | None = None,
        patience: float,
        preload: Sequence[str] = (),
        variables: Mapping[str, str] | None = None,
        say: Callable[[str], None] = print,
        **settings: Any,
    ) -> None:
        self._say, self._patience = say, patience
        self._workers_per_node = workers
        self._agent_arguments = recipe, preload, settings
        self._nodes: dict[str, Node] = {}  # those with an agent
        self._retry_at: dict[str, float] = {}
        self._said_once: set[str] = set()
        self._cause, self._alone_since = "", time.monotonic()
        self._batch = 0
        self._stop = threading.Event()
        self._folder = tempfile.mkdtemp(prefix="ray-") if address == LOCAL else None
        try:
            cpus = self._workers_per_node or cores()
            connect(address, self._folder, cpus=cpus, variables=variables or {})
            self._living, self._seen = living_nodes(), time.monotonic()
            threading.Thread(target=self._watch, daemon=True).start()
            self._start_agents()
        except BaseException:
            self.close()
            raise

    def evaluate(self, snapshot: Snapshot, tasks: Tasks, progress: Progress) -> Results:
        """Play tasks and return their results, (k,), in task order. Set the index of each task.

        Raise TaskError if an episode cannot be played, ClusterError if there is no worker for long.
        """
        import ray

        self._alone_since = time.monotonic()
        self._batch += 1
        tasks["index"] = range(len(tasks))
        results, reference = snapshot.results(len(tasks)), ray.put(snapshot)
        waiting, unfinished = deque(range(len(tasks))), len(tasks)
        while unfinished:
            self._start_agents()
            for node in self._ready:
                if node.call is None:
                    self._hand_out(node, waiting, tasks, reference)
            for node, report in self._reports():
                if report is None:  # it is lost
                    waiting.extendleft(sorted(node.tasks, reverse=True))
                    continue
                for line in report.said:
                    self._say(f"Node {node.name}: {line}")
                if report.error:
                    raise report.error
                indexes = report.results["index"]
                results[indexes] = report.results
                before = len(node.tasks)
                node.tasks -= {*indexes.tolist()}
                unfinished -= before - len(node.tasks)
            progress(len(tasks) - unfinished)
        return results

    def describe(self) -> str:
        """Return the numbers of nodes and workers, in words."""
        workers = sum(node.workers for node in self._ready)
        return f"{counted(len(self._ready), 'node')}, {counted(workers, 'worker')}"

    def close(self) -> None:
        """End all agents; idle ones end their workers first. Leave the cluster."""
        self._stop.set()
        with suppress(Exception):
            import ray

            idle = [node for node in self._ready if node.call is None]
            closing = [node.agent.close.remote() for node in idle]
            if closing:
                ray.wait(closing, num_returns=len(closing), timeout=CLOSE_SECONDS)
            for node in self._nodes.values():
                ray.kill(node.agent)
        self._nodes.clear()
        disconnect(self._folder)

    @property
    def _ready(self) -> list[Node]:
        """Return the nodes that can play."""
        return [node for node in self._nodes.values() if node.workers]

    def _watch(self) -> None:
        """Look for nodes, in a thread: the head node may not answer."""
        while not self._stop.wait(WATCH_SECONDS):
            with suppress(Exception):
                self._living, self._seen = living_nodes(), time.monotonic()

    def _start_agents(self) -> None:
        """Start missing agents. Raise ClusterError after `patience` s without a worker."""
        now = time.monotonic()
        if now - self._seen < FRESH_SECONDS:
            for node_id, name, cpus in self._living:
                if node_id not in self._nodes and now >= self._retry_at.get(node_id, 0.0):
                    self._start_agent(Node(node_id, name, cpus))
        if self._ready:
            self._alone_since = now
        elif now - self._alone_since > self._patience:
            nodes = counted(len(self._living), "node")
            unknown = f"{nodes} with CPUs, but these are taken or the workers are still starting"
            raise ClusterError(
                f"no worker for {self._patience:g} s (--ray-timeout); {self._cause or unknown}"
            )

    def _start_agent(self, node: Node) -> None:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        count = self._workers_per_node or node.cpus
        actor = ray.remote(Agent).options(
            num_cpus=min(count, node.cpus),
            max_restarts=0,
            max_task_retries=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False),
        )
        node.agent = actor.remote(count, *self._agent_arguments)
        node.call = node.agent.arrive.remote()
        self._nodes[node.id] = node

    def _hand_out(self, node: Node, waiting: deque[int], tasks: Tasks, snapshot: Any) -> None:
        """Give a node its next tasks, if there are any for it, and ask for a report."""
        ready = self._ready
        idle = sum(max(0, each.workers - len(each.tasks)) for each in ready)
        total = sum(each.workers for each in ready)
        count, rest = share(len(waiting), node.workers, len(node.tasks), idle, total)
        if not count and not node.tasks:
            return
        indexes = [waiting.popleft() for _ in range(count)]
        node.tasks |= {*indexes}
        new = snapshot if node.batch != self._batch else None
        node.batch = self._batch
        node.call = node.agent.play.remote(new, tasks[indexes], rest)

    def _reports(self) -> Iterator[tuple[Node, Report | None]]:
        """Wait a while for agents. Yield their reports, and None for each lost node."""
        import ray
        from ray.exceptions import RayError

        calls = {node.call: node for node in self._nodes.values() if node.call}
        if not calls:
            time.sleep(WAKE_SECONDS)
            return
        first, others = ray.wait([*calls], timeout=WAKE_SECONDS)
        done = first + (ray.wait(others, num_returns=len(others), timeout=0)[0] if others else [])
        for call in done:
            node = calls[call]
            node.call = None
            try:
                answer = ray.get(call)
            except RayError as error:
                self._drop(node, cause_of_loss(error))
                yield node, None
                continue
            if isinstance(answer, Report):
                node.workers = answer.workers
                yield node, answer
            else:
                self._welcome(node, *answer)

    def _welcome(self, node: Node, workers: int, its_versions: Mapping[str, str]) -> None:
        node.workers, self._cause, here = workers, "", versions()
        self._say(f"Node {node.name}: {counted(workers, 'worker')}.")
        changed = ", ".join(
            f"{name} {its_versions.get(name, '-')} (here {here.get(name, '-')})"
            for name in sorted({*here, *its_versions})
            if here.get(name) != its_versions.get(name)
        )
        if changed:
            self._say_once(
                f"warning: node {node.name} differs from this machine in {changed}: results may "
                "differ in the last digits."
            )

    def _drop(self, node: Node, cause: str) -> None:
        """End an agent; its node is tried again later. The caller hands out its tasks again."""
        import ray

        del self._nodes[node.id]
        with suppress(Exception):
            ray.kill(node.agent)
        self._retry_at[node.id] = time.monotonic() + RETRY_SECONDS
        self._cause = f"node {node.name}: {cause}"
        if node.workers:
            episodes = counted(len(node.tasks), "episode")
            self._say(f"Node {node.name} is lost ({cause}): {episodes} to be played again.")
        else:
            self._say_once(f"Node {node.name} cannot take part ({cause}).")

    def _say_once(self, line: str) -> None:
        if line not in self._said_once:
            self._said_once.add(line)
            self._say(line)


def share(waiting: int, workers: int, unfinished: int, idle: int, total: int) -> tuple[int, int]:
    """Return how many tasks a node gets, and how many are left when it asks for more.

    waiting: tasks that no node has yet. workers, unfinished: this node's workers and tasks. idle,
    total: the workers without a task and all workers, of all nodes.

    Each idle worker gets a task. Of the tasks that then remain, a node gets half of its share in
    advance, so that its workers need not wait for the master: many at first, which takes few
    messages, none at the end, so that all nodes finish together (guided self-scheduling,
    Polychronopoulos and Kuck 1987). It asks again when three quarters of these are taken.
    """
    ahead = max(0, waiting - idle) * workers // (2 * total)
    given = min(waiting, max(0, workers + ahead - unfinished))
    if given == waiting:
        return given, 0
    return given, workers + ahead // 4 if ahead else workers - 1


def living_nodes() -> list[tuple[str, str, int]]:
    """Return id, address and CPUs of all nodes of the cluster that have CPUs."""
    import ray

    return [
        (node["NodeID"], node["NodeManagerAddress"], int(node["Resources"]["CPU"]))
        for node in ray.nodes()
        if node["Alive"] and node["Resources"].get("CPU", 0) >= 1
    ]


def cause_of_loss(error: RayError) -> str:
    """Return why an agent has ended, in a line: Ray's reason, or the last line of a traceback."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    last = lines[-1] if lines else type(error).__name__
    _, _, reason = last.partition("The actor is dead because ")
    return in_one_line(reason.partition(". ")[0] or last)
