"""The pool on a real Ray: nodes of a cluster on this machine, killed and added."""

import contextlib
import logging
import os
import re
import signal
from pathlib import Path

import numpy as np
import psutil
import pytest
from es.rollouts.in_process import InProcessPool
from es.rollouts.rollout import Snapshot

from es.algorithm import noise
from es.algorithm.noise import weighted_sum
from es.cluster import pool as pool_module
from es.cluster.pool import RayPool
from es.errors import RunError, TaskError
from tests.checkpoints import has_rows, read, same_run
from tests.conftest import NEEDS_RAY
from tests.fakes import SNAPSHOT, TASKS, UNLUCKY, Picky, Raising, recipe
from tests.processes import ROOT, wait_until

pytestmark = NEEDS_RAY
RUN = Path("checkpoints/Acrobot-v1")
ACROBOT = (
    "--small-net", "--env-name", "Acrobot-v1", "--n", 40, "--seed", 1, "--obs-norm",
    "--max-episode-length", 200,
)  # fmt: skip


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A head without CPUs, and a node with one."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (
            ("RAY_AUTH_MODE", "token"), ("RAY_AUTH_TOKEN", "0" * 64),
            ("RAY_USAGE_STATS_ENABLED", "0"),
        ):  # fmt: skip
            patch.setenv(name, value)  # Ray reads them when it is imported
        from ray.cluster_utils import Cluster

        cluster = Cluster(
            initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False}
        )
        cluster.add_node(num_cpus=1)
        yield cluster
        cluster.shutdown()


@pytest.fixture
def ray_pool(cluster):
    """Makes pools on the cluster, which do not outlive the test."""
    Path("tests").symlink_to(ROOT / "tests")  # the folder is sent to the nodes, which need fakes
    opened: list[RayPool] = []

    def make(made_of=None, **more):
        opened.append(RayPool(cluster.address, made_of or recipe(), size=10, **more))
        return opened[-1]

    yield make
    for pool in opened:
        pool.close()


def agents():
    """The processes of the cluster's agents."""
    started = psutil.Process().children(recursive=True)
    return [process.pid for process in started if "ray::Agent" in " ".join(cmdline(process))]


def cmdline(process):
    with contextlib.suppress(psutil.Error):
        return process.cmdline()
    return []


def nobody_works(cluster):
    import ray

    ray.init(address=cluster.address, log_to_driver=False, logging_level=logging.CRITICAL)
    try:
        return ray.available_resources().get("CPU", 0) == ray.cluster_resources()["CPU"]
    finally:
        ray.shutdown()


def test_nodes_that_die_and_join_change_no_result(start, program, cluster):
    doomed = cluster.add_node(num_cpus=1)
    process = start(*ACROBOT, "--ray", cluster.address, "--sigma", 0.02)
    wait_until(lambda: has_rows(RUN, 3))
    cluster.remove_node(doomed, allow_graceful=False)
    cluster.add_node(num_cpus=2)
    lines: list[str] = []
    assert process.stdout is not None
    while sum(": 2 workers." in line for line in lines) == 0:
        lines.append(process.stdout.readline())
        assert lines[-1], "the run has ended"
    rows = len((RUN / "progress.csv").read_text().splitlines())
    wait_until(lambda: has_rows(RUN, rows + 2))
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "")
    lines += out.splitlines()
    assert any("is lost" in line and "played again" in line for line in lines)
    assert lines[-2].startswith("Interrupted after ")
    assert f"main.py --ray {cluster.address} --restore " in lines[-1]
    wait_until(lambda: nobody_works(cluster))
    updates = read(RUN / "latest.safetensors").counters.update
    here = ("--workers", 2, "--sigma", 0.02, "--max-gradient-updates", updates)
    status, _, _ = program(*ACROBOT, *here, "--run-dir", "here")
    assert status == 0
    assert same_run(read(RUN / "latest.safetensors"), read("here/latest.safetensors"))


def test_a_pool_of_agents_that_are_killed_gives_the_results_of_this_process(ray_pool, monkeypatch):
    said: list[str] = []
    pool = ray_pool(recipe(length=20, seconds=0.002), say=said.append)
    steady = InProcessPool(recipe(length=20))
    weights = [(seed, 1 / (1 + seed)) for seed in range(noise.LEAF * noise.FAN**2 + 300)]
    for batch in range(3):
        tasks = [TASKS[k % 10]._replace(index=k, episode_seed=k + batch) for k in range(60)]
        snapshot = Snapshot(SNAPSHOT.theta + batch, 0.1)
        done: list[int] = []

        def strike(count, done=done, batch=batch):
            done.append(count)
            if batch == 1 and 0 < count < 60 and not any("is lost" in line for line in said):
                for pid in agents():
                    os.kill(pid, signal.SIGKILL)

        assert pool.evaluate(snapshot, tasks, strike) == steady.evaluate(snapshot, tasks)
        assert done == sorted(done)
        assert done[-1] == 60
    assert any("is lost" in line for line in said)
    assert "played again" in pool.describe()
    twice = [(seed, weight, -weight) for seed, weight in weights]  # for sigmas that adapt
    expected, both = weighted_sum(weights, 200), weighted_sum(twice, 200)
    monkeypatch.setattr(pool_module, "WORTH_SENDING", 0)
    monkeypatch.setattr(pool_module, "weighted_sum", None)  # nothing is summed here
    assert np.array_equal(pool.sum_noise(weights, 200), expected)
    assert np.array_equal(pool.sum_noise(twice, 200), both)
    for pid in agents():
        os.kill(pid, signal.SIGKILL)
    assert np.array_equal(pool.sum_noise(twice, 200), both)


def test_a_lost_connection_is_made_again(ray_pool, monkeypatch):
    """That process also dies with the node that the master runs on, since Ray ends it."""
    said: list[str] = []
    pool = ray_pool(recipe(length=20, seconds=0.002), say=said.append)
    steady = InProcessPool(recipe(length=20))
    bridges: list[int] = []

    def strike(count):
        if count and not bridges:
            bridges.append(pool._process.pid)
            os.kill(bridges[0], signal.SIGKILL)

    tasks = [TASKS[k % 10]._replace(index=k, episode_seed=k) for k in range(60)]
    assert pool.evaluate(SNAPSHOT, tasks, strike) == steady.evaluate(SNAPSHOT, tasks)
    assert "The connection to Ray is lost: connecting again." in said
    assert "played again" in pool.describe()
    monkeypatch.setattr(pool_module, "WORTH_SENDING", 0)
    os.kill(pool._process.pid, signal.SIGKILL)
    weights = [(seed, 0.1) for seed in range(100)]
    assert np.array_equal(pool.sum_noise(weights, 200), weighted_sum(weights, 200))
    assert pool.evaluate(SNAPSHOT, tasks) == steady.evaluate(SNAPSHOT, tasks)


def test_a_task_that_cannot_be_played_ends_the_run_with_its_traceback(ray_pool):
    failing = ray_pool(recipe(Raising))
    with pytest.raises(TaskError, match=r"(?s)Task\(index=5.*ValueError: unlucky"):
        failing.evaluate(SNAPSHOT, [*TASKS[:5], UNLUCKY])


def test_a_task_that_one_node_cannot_play_is_played_by_another(ray_pool, cluster, tmp_path):
    said: list[str] = []
    cluster.add_node(num_cpus=1)
    picky = ray_pool(recipe(Picky, str(tmp_path / "file")), say=said.append)
    tasks = [*TASKS[:5], UNLUCKY, *TASKS[6:]]
    wait_until(lambda: picky.evaluate(SNAPSHOT, TASKS) and picky._status.nodes >= 2)
    assert picky.evaluate(SNAPSHOT, tasks) == InProcessPool(recipe()).evaluate(SNAPSHOT, tasks)
    assert any("is lost (Task(index=5" in line for line in said)


def test_a_cluster_on_which_nobody_can_play_is_given_up(ray_pool):
    for patience in (6.0, 24.0, 96.0):  # on a busy machine agents take long to start, and to fail
        said: list[str] = []
        idle = ray_pool(recipe(nonsense=1), patience=patience, say=said.append)
        with pytest.raises(RunError) as caught:
            idle.evaluate(SNAPSHOT, TASKS)
        assert f"no worker for {patience:g} s (--ray-timeout); " in str(caught.value)
        if said:
            break
    assert re.search(r"\); node .*'nonsense'", str(caught.value))
    assert "cannot take part (" in said[0]
    assert len(said) == len(set(said))


def test_nodes_with_other_libraries_are_told_of(ray_pool, tmp_path):
    other = tmp_path / "mujoco-0.1.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: mujoco\nVersion: 0.1\n")
    said: list[str] = []
    pool = ray_pool(say=said.append, variables={"PYTHONPATH": str(tmp_path)})
    assert pool.evaluate(SNAPSHOT, TASKS)
    assert any("differs from this machine in mujoco 0.1 (here " in line for line in said)
