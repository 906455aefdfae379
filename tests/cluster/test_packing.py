import numpy as np
import pytest

from es.cluster.packing import pack_results, pack_tasks, unpack_results, unpack_tasks
from es.rollouts.rollout import Result, Task
from tests.fakes import TASKS


@pytest.mark.parametrize("count", [0, 1, 10])
def test_tasks_come_out_as_they_went_in(count):
    tasks = [task._replace(noise_seed=2**31 - 1, sign=-1) for task in TASKS[:count]]
    out = unpack_tasks(pack_tasks(tasks))
    assert out == tasks
    assert all(type(number) is int for task in out for number in task)
    assert unpack_tasks(pack_tasks([Task(0, 0, 0, 0, 10**30)]))[0].cap >= 10**18


@pytest.mark.parametrize("clipped", [None, 0.5])
@pytest.mark.parametrize("inputs", [0, 3])
@pytest.mark.parametrize("count", [0, 1, 10])
def test_results_come_out_as_they_went_in(count, inputs, clipped):
    sums = [np.random.rand(2, inputs) if inputs else None for _ in range(count)]
    values = [0.1, float("nan"), float("-inf"), 1e308, -0.0, 1 / 3, 7.0, 8.0, 9.0, 10.0]
    results = [Result(k, values[k], 10**9 + k, sums[k], clipped) for k in range(count)]
    out = unpack_results(pack_results(results))
    assert [str(result[:3]) for result in out] == [str(result[:3]) for result in results]
    for before, after in zip(results, out, strict=True):
        assert type(after.episode_return) is float
        assert after.clipped_return == before.clipped_return
        assert (after.observed is None) == (before.observed is None)
        assert str(before.observed) == str(after.observed)
