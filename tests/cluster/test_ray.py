"""Whole runs and pools on a real Ray: nodes of a cluster on this machine, killed and added."""

import contextlib
import itertools
import logging
import os
import re
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from es.cluster.pool import open_ray
from es.errors import ClusterError, TaskError
from es.rollouts.player import InProcessPool
from tests.checkpoints import has_rows, read, rows, same_run
from tests.conftest import NEEDS_RAY
from tests.fakes import SNAPSHOT, UNLUCKY, Raising, recipe, same_results, tasks_with
from tests.processes import ROOT, all_gone, descendants, output, wait_until

pytestmark = [*NEEDS_RAY, pytest.mark.xdist_group("ray")]
RUN = Path("checkpoints/Acrobot-v1")
ACROBOT = (
    "--small-net", "--env-name", "Acrobot-v1", "--n", 40, "--seed", 1, "--obs-norm",
    "--max-episode-length", 200,
)  # fmt: skip


@pytest.fixture(scope="module")
def cluster():
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
    with contextlib.ExitStack() as stack:

        def make(made_of=None, **more):
            pool = open_ray(cluster.address, made_of or recipe(), size=10, **more)
            stack.callback(pool.close)
            return pool

        yield make


def agents():
    """The processes of the cluster's agents."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if "ray::Agent" in " ".join(process.cmdline()):
                found.append(process.pid)
    return found


def nobody_works(cluster):
    """Whether all CPUs of the cluster are free."""
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


def test_agents_and_the_process_that_uses_ray_may_be_killed(ray_pool, tmp_path):
    """Ray ends that process when the node that the master runs on is lost."""
    other = tmp_path / "packages" / "mujoco-0.1.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: mujoco\nVersion: 0.1\n")
    said: list[str] = []
    slow, path = recipe(length=20, seconds=0.002), {"PYTHONPATH": str(other.parent)}
    pool = ray_pool(slow, say=said.append, variables=path)
    steady = InProcessPool(recipe(length=20))
    process = pool._process.pid
    for batch in range(3):
        tasks = tasks_with(*range(batch, batch + 60))

        def strike(count, batch=batch):
            if batch == 1 and 0 < count < 60 and not any("is lost" in line for line in said):
                for pid in agents():
                    os.kill(pid, signal.SIGKILL)
            if batch == 2 and count > 0 and pool._process.pid == process:
                os.kill(process, signal.SIGKILL)

        assert same_results(
            pool.evaluate(SNAPSHOT, tasks, strike), steady.evaluate(SNAPSHOT, tasks)
        )
    assert any("is lost" in line for line in said)
    assert any("workers died (exit code -9): starting it again" in line for line in said)
    assert any("differs from this machine in mujoco 0.1 (here " in line for line in said)


def test_what_cannot_be_played_ends_the_run_with_its_cause(ray_pool):
    with pytest.raises(TaskError, match=r"(?s)seed 13 .*ValueError: unlucky"):
        ray_pool(recipe(Raising)).evaluate(SNAPSHOT, UNLUCKY)
    said: list[str] = []
    patience = itertools.count(10, 30)  # a busy machine starts workers, which then fail, slowly

    def gives_up_with_the_cause():
        seconds = next(patience)
        gives_up = pytest.raises(ClusterError, match=rf"no worker for {seconds} s \(--ray-timeout")
        with gives_up as caught:
            idle = ray_pool(recipe(nonsense=1), say=said.append, patience=seconds)
            idle.evaluate(SNAPSHOT, UNLUCKY)
        return re.search(r"; node .* argument 'nonsense'", str(caught.value))

    wait_until(gives_up_with_the_cause)
    assert re.match(r"Node .* cannot take part \(.*argument 'nonsense'", said[0])


@pytest.fixture
def folder(monkeypatch):
    """A folder for temporary files, whose path is short enough for Ray's sockets."""
    monkeypatch.setenv("TMPDIR", tempfile.mkdtemp(dir="/tmp"))
    return Path(os.environ["TMPDIR"])


def test_a_ray_of_its_own_is_private_and_leaves_nothing(start, folder):
    """Even if the master is killed."""
    process = start(*ACROBOT, "--ray", "local", "--workers", 1)
    wait_until(lambda: has_rows(RUN, 1))
    pids = descendants(process.pid)
    started = [psutil.Process(pid) for pid in (process.pid, *pids)]
    listening = [
        connection.laddr.ip
        for one in started
        for connection in one.net_connections()
        if connection.status == psutil.CONN_LISTEN
    ]
    assert listening
    assert {address.removeprefix("::ffff:") for address in listening} == {"127.0.0.1"}
    process.kill()
    process.wait()
    wait_until(lambda: all_gone(pids))
    wait_until(lambda: not list(folder.glob("ray-*")))


def test_without_a_cluster_it_says_what_to_do(program):
    status, _, err = program(*ACROBOT, "--ray", "127.0.0.1:1")
    assert status == 2
    assert err.startswith("error: --ray 127.0.0.1:1: no cluster can be reached")
    assert "(RAY_AUTH_MODE=token)" in err  # a wrong token looks the same
    assert err.count("\n") == 1
    assert not RUN.exists()


# Its environment and wrapper are in no module; its network is in one beside it.
SCRIPT = """
import sys
sys.path.append({root!r})
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv
from es import learn

class Short(gymnasium.Wrapper):
    def __init__(self, env, most):
        super().__init__(gymnasium.wrappers.TimeLimit(env, most))

class Mine(CartPoleEnv):
    pass

for where, run_dir in (dict(ray="local", workers=1), "there"), (dict(workers=0), "here"):
    learn(
        env_name=Mine, env_wrapper=[Short, "most=30"], net="nets:Plain", net_kwargs=dict(width=8),
        n=6, seed=1, sigma=1, max_gradient_updates=2, run_dir=run_dir, **where
    )
"""


def test_what_a_script_defines_travels_to_the_workers_and_nothing_is_left(folder):
    Path("script.py").write_text(SCRIPT.format(root=str(ROOT)))
    shutil.copy(ROOT / "tests" / "nets.py", "nets.py")
    output(sys.executable, "script.py")
    assert not list(folder.glob("ray-*"))
    there, here = (read(f"{run}/latest.safetensors") for run in ("there", "here"))
    assert there.counters.update == 2
    assert same_run(there, here)
    assert all(float(row["grad_norm"]) > 0 for row in rows(Path("there")))
