"""How tasks are divided among nodes, and a run without Ray."""

import heapq
import importlib.util
import random

import pytest

from es.cluster.pool import open_ray, share
from es.errors import UsageError
from tests.fakes import recipe


def play(nodes, tasks, duration, delay=0.0, impatience=1e9):
    """Simulates nodes of so many workers each: when all is done, and how many messages it took.

    delay: from a node's report to its next tasks. impatience: after which a node reports anyway.
    """
    waiting, messages, clock = tasks, 0, 0.0
    queued, playing = [0] * len(nodes), [0] * len(nodes)
    since = [0.0] * len(nodes)
    wanted: list[int | None] = [None] * len(nodes)  # None: it has reported, and waits for an answer
    events = [(0.0, node, "hand out") for node in range(len(nodes))]
    while events:
        clock, node, what = heapq.heappop(events)
        if what == "done":
            playing[node] -= 1
        else:
            unfinished = [q + p for q, p in zip(queued, playing, strict=True)]
            idle = sum(max(0, w - u) for w, u in zip(nodes, unfinished, strict=True))
            given, rest = share(waiting, nodes[node], unfinished[node], idle, sum(nodes))
            assert 0 <= given <= waiting
            if not given and not unfinished[node]:
                continue
            # Or it would report at once, for nothing.
            assert 0 <= rest < unfinished[node] + given
            waiting -= given
            queued[node] += given
            wanted[node], since[node] = rest, clock
            messages += 1
        while queued[node] and playing[node] < nodes[node]:
            queued[node] -= 1
            playing[node] += 1
            heapq.heappush(events, (clock + duration(), node, "done"))
        limit = wanted[node]
        late = what == "done" and clock - since[node] > impatience
        if limit is not None and (queued[node] + playing[node] <= limit or late):
            wanted[node] = None
            heapq.heappush(events, (clock + delay, node, "hand out"))
    assert waiting == sum(queued) == sum(playing) == 0
    return clock, messages


@pytest.mark.parametrize("nodes", [[1], [2], [2, 2], [1, 8], [32] * 45, [64, 4, 16, 1]])
@pytest.mark.parametrize("each", [1, 10, 100])
@pytest.mark.parametrize("impatience", [0.3, 1e9])
def test_nodes_finish_together_after_few_messages(nodes, each, impatience):
    chance = random.Random(1)
    durations = [chance.uniform(0.5, 1.5) for _ in range(each * sum(nodes))]
    total = sum(durations)
    end, messages = play(nodes, len(durations), durations.pop, impatience=impatience)
    # As good as a single queue for all workers: nobody waits while a task does.
    assert end < total / sum(nodes) + 1.5
    assert messages < len(nodes) * (8 + 2 * each + end / impatience)


@pytest.mark.parametrize("each", [10, 100])
def test_workers_do_not_wait_for_the_master(each):
    """Though it takes a twentieth of an episode to answer."""
    nodes = [8] * 4
    end, _ = play(nodes, each * sum(nodes), lambda: 1.0, delay=0.05)
    assert end < each + 1.2


def test_without_ray_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install -r requirements-ray\.txt"):
        open_ray("auto", recipe(), size=10)
