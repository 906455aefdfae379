"""The nodes of the cluster and their agents: which are ready, which are lost."""

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import ray
from ray.exceptions import ActorUnavailableError, RayActorError, RayError

from es.checkpoint import versions
from es.cluster.agent import Arrival, Report
from es.errors import ClusterError, in_one_line
from es.rollouts.interface import counted
from es.rollouts.rollout import Task

WATCH_SECONDS = 0.5
FRESH_SECONDS = 5.0  # no agent is started from an older list of nodes
SILENT_SECONDS = 60.0  # an agent that is silent for longer hangs
PAUSES = 1.0, 30.0  # seconds before a node is tried again: at first, and at most


class Node(NamedTuple):
    """A living node. name: for the user."""

    id: str
    name: str
    cpus: int


class Member:
    """A node with its agent.

    tasks: those it has not reported, by index. call: its unfinished call, made at `called`.
    workers: 0 until it is ready. batch: the last one that it began.
    """

    def __init__(self, node: Node, agent: Any) -> None:
        self.node, self.agent = node, agent
        self.workers = self.batch = 0
        self.tasks: dict[int, Task] = {}
        self.call: ray.ObjectRef | None = None
        self.called = 0.0
        self.ask(agent.arrive)

    def ask(self, method: Any, *arguments: Any) -> None:
        """Call a method of the agent, whose result `Nodes.answers` returns."""
        self.call, self.called = method.remote(*arguments), time.monotonic()


class Nodes:
    """All agents. A thread looks for nodes, since the head node may not answer.

    start: starts a node's agent. timeout: the limit in seconds without any worker. say: shows a
    line to the user.
    """

    def __init__(
        self, start: Callable[[Node], Any], *, timeout: float, say: Callable[[str], None]
    ) -> None:
        self._start, self._timeout, self._say = start, timeout, say
        self.members: dict[str, Member] = {}
        self._retries: dict[str, tuple[float, float]] = {}  # when, and the pause after that
        self._said: set[str] = set()
        self._cause, self._alone_since = "", time.monotonic()
        self._nodes, self._seen = living_nodes(), time.monotonic()
        self._stop = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    @property
    def ready(self) -> list[Member]:
        """Return the members that can play."""
        return [member for member in self.members.values() if member.workers]

    def begin(self) -> None:
        """Begin a batch: forget answers of the last one, and restart the timeout."""
        self.answers(0.0)
        self._alone_since = time.monotonic()

    def refresh(self) -> None:
        """Start agents on nodes without one; raise ClusterError after `timeout` without workers."""
        now = time.monotonic()
        if now - self._seen < FRESH_SECONDS:
            for node in self._nodes:
                when, _ = self._retries.get(node.id, (0.0, 0.0))
                if node.id not in self.members and now >= when:
                    self.members[node.id] = Member(node, self._start(node))
        if self.ready:
            self._alone_since = now
        elif now - self._alone_since > self._timeout:
            nodes = counted(len(self._nodes), "node")
            unknown = f"{nodes} with CPUs, where none is free or the workers are still starting"
            raise ClusterError(
                f"no worker for {self._timeout:g} s (--ray-timeout); {self._cause or unknown}"
            )

    def answers(self, patience: float) -> list[tuple[Member, Report | None]]:
        """Wait at most `patience` seconds; return reports, and None for each lost agent."""
        calls = {member.call: member for member in self.members.values() if member.call}
        if not calls:
            time.sleep(min(patience, WATCH_SECONDS))
            return []
        answers: list[tuple[Member, Report | None]] = []
        first, others = ray.wait([*calls], timeout=patience)
        done = first + (ray.wait(others, num_returns=len(others), timeout=0)[0] if others else [])
        for call in done:
            member = calls[call]
            member.call = None
            try:
                answer = ray.get(call)
            except RayError as error:
                self.drop(member, _in_short(error), news=_raised(error))
                answers.append((member, None))
                continue
            if isinstance(answer, Arrival):
                self._welcome(member, answer)
            else:
                member.workers = answer.workers
                answers.append((member, answer))
        silent = time.monotonic() - SILENT_SECONDS
        for member in self.ready:
            if member.call and member.called < silent:
                self.drop(member, "it does not answer")
                answers.append((member, None))
        return answers

    def close(self) -> None:
        """End all agents; idle ones end their workers first."""
        self._stop.set()
        idle = [member for member in self.ready if member.call is None]
        with suppress(Exception):
            closing = [member.agent.close.remote() for member in idle]
            if closing:
                ray.wait(closing, num_returns=len(closing), timeout=1.0)
        for member in self.members.values():
            _kill(member)
        self.members.clear()
        self._watcher.join(WATCH_SECONDS)

    def _watch(self) -> None:
        while not self._stop.wait(WATCH_SECONDS):
            with suppress(Exception):  # the head node does not answer
                self._nodes, self._seen = living_nodes(), time.monotonic()

    def _welcome(self, member: Member, arrival: Arrival) -> None:
        member.workers = arrival.workers
        self._cause = ""
        self._say(f"Node {member.node.name}: {counted(arrival.workers, 'worker')}.")
        if changed := differences(versions(), arrival.versions):
            self._say_once(
                f"warning: node {member.node.name} differs from this machine in {changed}: results "
                "may differ in the last digits."
            )

    def drop(self, member: Member, cause: str, *, news: bool = False) -> None:
        """End an agent; its node is tried again later. news: tell the user even if it never played.

        The caller hands out its tasks again.
        """
        node = member.node
        del self.members[node.id]
        _kill(member)
        first, longest = PAUSES
        _, pause = self._retries.get(node.id, (0.0, first))
        self._retries[node.id] = time.monotonic() + pause, min(2 * pause, longest)
        self._cause = f"node {node.name}: {cause}"
        if member.workers:
            episodes = counted(len(member.tasks), "episode")
            self._say(f"Node {node.name} is lost ({cause}): {episodes} to be played again.")
        elif news:
            self._say_once(f"Node {node.name} cannot take part ({cause}).")

    def _say_once(self, line: str) -> None:
        if line not in self._said:
            self._said.add(line)
            self._say(line)


def living_nodes() -> list[Node]:
    """Return all nodes of the cluster that have CPUs."""
    alive = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= 1]
    addresses = [node["NodeManagerAddress"] for node in alive]
    return [
        Node(
            node["NodeID"],
            address if addresses.count(address) == 1 else f"{address}/{node['NodeID'][:6]}",
            int(node["Resources"]["CPU"]),
        )
        for node, address in zip(alive, addresses, strict=True)
    ]


def _in_short(error: RayError) -> str:
    if isinstance(error, ActorUnavailableError):
        return "it cannot be reached"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    last = lines[-1] if lines else type(error).__name__
    if _raised(error):
        return in_one_line(last)
    return in_one_line(last.removeprefix("The actor is dead because ").partition(". ")[0])


def _raised(error: RayError) -> bool:
    """Return whether the agent itself failed, and would again; otherwise it was lost."""
    return not isinstance(error, RayActorError) or error.actor_init_failed


def _kill(member: Member) -> None:
    with suppress(Exception):
        ray.kill(member.agent)


def differences(now: Mapping[str, str], other: Mapping[str, str]) -> str:
    """Describe in what other `versions` differ from those of now; return "" if in nothing."""
    return ", ".join(
        f"{name} {other.get(name, '-')} (here {now.get(name, '-')})"
        for name in sorted({*other, *now})
        if other.get(name) != now.get(name)
    )
