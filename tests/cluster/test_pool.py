"""How tasks are divided among nodes, and a run without Ray."""

import importlib.util

import pytest

from es.cluster.pool import open_ray, share
from es.errors import UsageError
from tests.fakes import recipe


@pytest.mark.parametrize(("workers", "total"), [(1, 1), (4, 8), (8, 9), (32, 1440)])
@pytest.mark.parametrize("each", [1, 10, 100])
def test_a_node_gets_smaller_parts_in_the_end_and_before_its_workers_are_idle(workers, total, each):
    """As it is seen by one node, while the others take their parts."""
    waiting, unfinished, counts = each * total, 0, list[int]()
    while waiting:
        idle = total if not counts else 0
        count, rest = share(waiting, workers, unfinished, idle, total)
        assert 0 <= count <= waiting
        # Or it would report at once, for nothing.
        assert rest < unfinished + count
        assert rest >= workers - 1 or count == waiting
        counts.append(count)
        waiting = max(0, waiting - count * total // workers)
        unfinished = rest
    assert counts[0] == max(counts)
    assert counts[-1] <= workers
    assert len(counts) <= 8 + 2 * each


def test_a_large_node_gets_more_and_idle_workers_come_first():
    (small, _), (large, _) = share(1000, 1, 0, 9, 9), share(1000, 8, 0, 9, 9)
    assert 7 < large / small < 9
    assert share(10, 8, 0, 16, 16) == (8, 7)
    assert share(2, 8, 0, 16, 16) == (2, 0)


def test_without_ray_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install -r requirements-ray\.txt"):
        open_ray("auto", recipe(), size=10)
