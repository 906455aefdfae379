"""A Ray of the program's own, and no Ray at all."""

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from es.cluster.pool import RayPool
from es.errors import UsageError
from tests.checkpoints import has_rows, read, same_run
from tests.conftest import NEEDS_RAY
from tests.fakes import recipe
from tests.processes import ROOT, all_gone, descendants, wait_until

pytestmark = NEEDS_RAY
RUN = Path("checkpoints/Acrobot-v1")
ACROBOT = ("--small-net", "--env-name", "Acrobot-v1", "--n", 40, "--seed", 1, "--obs-norm")


@pytest.fixture
def folder(monkeypatch):
    """A folder for temporary files, whose path is short enough for Ray's sockets."""
    monkeypatch.setenv("TMPDIR", tempfile.mkdtemp(dir="/tmp"))
    return Path(os.environ["TMPDIR"])


def test_a_ray_of_its_own_is_private_and_leaves_nothing(start, folder):
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
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "")
    wait_until(lambda: all_gone(pids))
    # All but what torch makes when it is imported.
    assert all(path.name.startswith("torchinductor_") for path in folder.iterdir())
    assert read(RUN / "latest.safetensors").counters.update >= 1
    assert out.splitlines()[-2].startswith("Interrupted after ")


def test_the_death_of_the_master_ends_a_ray_of_its_own(start, folder):
    process = start(*ACROBOT, "--ray", "local", "--workers", 1)
    wait_until(lambda: has_rows(RUN, 1))
    pids = descendants(process.pid)
    process.kill()
    process.wait()
    wait_until(lambda: all_gone(pids))
    wait_until(lambda: not list(folder.glob("ray-*")))


def test_an_interrupt_while_it_connects_is_quiet(start, folder):
    process = start(*ACROBOT, "--ray", "local")
    wait_until(lambda: list(folder.glob("ray-*")))
    time.sleep(0.3)  # somewhere in the imports
    pids = descendants(process.pid)
    os.killpg(process.pid, signal.SIGINT)
    _out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "")
    wait_until(lambda: all_gone(pids))


def test_without_a_cluster_it_says_what_to_do(program):
    status, _, err = program(*ACROBOT, "--ray", "127.0.0.1:1")
    assert status == 2
    assert err.startswith("error: --ray 127.0.0.1:1: no cluster can be reached")
    assert "(RAY_AUTH_MODE=token)" in err  # a wrong token looks the same
    assert err.count("\n") == 1
    for flags, part in (
        (("--ray", "nonsense"), "--ray 'nonsense' must be 'auto', 'local' or HOST:PORT"),
        (("--ray", "ray://a:1"), "must be 'auto', 'local' or HOST:PORT"),
        (("--ray", "auto", "--workers", 0), "--workers 0"),
        (("--ray-timeout", 0), "--ray-timeout 0.0 must be above 0"),
    ):
        status, _, err = program(*ACROBOT, *flags)
        assert (status, err.count("\n")) == (2, 1)
        assert part in err
    assert not RUN.exists()


def test_without_ray_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install -r requirements-ray\.txt"):
        RayPool("auto", recipe(), size=10)


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
        n=6, seed=1, max_gradient_updates=2, run_dir=run_dir, **where
    )
"""


def test_what_a_script_defines_travels_to_the_workers(folder):
    Path("script.py").write_text(SCRIPT.format(root=str(ROOT)))
    shutil.copy(ROOT / "tests" / "nets.py", "nets.py")
    done = subprocess.run(
        [sys.executable, "script.py"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    there, here = (read(f"{run}/latest.safetensors") for run in ("there", "here"))
    assert there.counters.update == 2
    assert same_run(there, here)


def test_a_sum_that_nobody_waits_for_ends_though_a_node_is_silent(monkeypatch):
    from es.cluster.dispatcher import Dispatcher

    agent: Any = SimpleNamespace(sum_noise=SimpleNamespace(remote=lambda *part: object()))
    nodes = SimpleNamespace(ready=[SimpleNamespace(agent=agent, call=None)])
    asked: list[float] = []

    def wait(sums, *, num_returns, timeout):
        asked.append(timeout)
        return [], sums

    monkeypatch.setattr("ray.wait", wait)
    one: Any = SimpleNamespace(_nodes=nodes)
    with pytest.raises(EOFError):
        Dispatcher.sum_noise(one, [(1, 1.0)], 10, 1.0, lambda: len(asked) == 3)
    assert sum(asked) < 2  # seconds
