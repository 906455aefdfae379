"""Kernels that are compiled once, wherever they can be kept."""

import fcntl
import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.processes import run_python

FOLDER = Path(__file__).resolve().parent.parent.parent

PROGRAM = """
import hashlib
import numpy as np
from es.model import initial_theta
from es.networks import make_actor
digest = hashlib.sha256()
from tests.networks.descriptions import box, convlstm, mlp
images = np.random.default_rng(1).normal(size=(9, 1, 42, 42)).astype(np.float32)
for network, shape in (
    (mlp(5, 3), (5,)),
    (mlp(5, activation="tanh", normalize=True) | {"actions": box([-1, -2], [1, 3])}, (5,)),
    (convlstm(), (1, 42, 42)),
    (convlstm(vbn=True), (1, 42, 42)),
):
    actor = make_actor(network, images)
    actor.bind(initial_theta(network, 0), np.stack([np.arange(5), 1 / np.arange(1, 6)]))
    actor.reset()
    for observation in np.random.default_rng(0).normal(size=(20, *shape)).astype(np.float32):
        digest.update(np.asarray(actor.act(observation)).tobytes())
        digest.update(actor.outputs.tobytes())
    digest.update(b"" if actor.observed() is None else actor.observed().tobytes())
print(digest.hexdigest())
"""


QUICK = """
import numpy
from es.kernels import compiling
compiling.PATIENCE = 0.1
from es.kernels import images
print(images.__file__)
"""


def copy_of_es(folder):
    """The kernels with nothing compiled."""
    shutil.copytree(FOLDER / "es", folder / "es", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def test_kernels_are_compiled_once_with_the_outputs_of_any_other_cpu(tmp_path):
    """The user is told of it, and a damaged cache is no obstacle."""
    cache = {"NUMBA_CACHE_DIR": str(tmp_path)}
    if sys.platform.startswith("linux") and os.uname().machine == "x86_64":
        cache |= {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": ""}  # narrower vector units
    here = run_python(PROGRAM).stdout.splitlines()[-1]
    assert len(here) == 64
    first, second = (run_python(PROGRAM, FOLDER, **cache, ES_TELL="1") for _ in range(2))
    assert first.stdout.count("Compiling the policies' inner loops") == 1
    assert first.stdout.splitlines()[1:] == second.stdout.splitlines() == [here]
    for path in tmp_path.glob("**/*dense*.nb?"):
        path.write_bytes(path.read_bytes()[:20] if path.suffix == ".nbc" else b"")
    third = run_python(PROGRAM, FOLDER, **cache)
    assert third.stdout.splitlines()[-1] == here
    assert (first.stderr, second.stderr, third.stderr) == ("", "", "")


def test_copies_share_what_is_compiled_until_one_is_changed(tmp_path):
    cache, copy = tmp_path / "cache", copy_of_es(tmp_path)

    def compiled_after_a_run(folder):
        assert run_python(QUICK, folder, NUMBA_CACHE_DIR=str(cache)).returncode == 0
        return {(path, path.stat().st_mtime_ns) for path in cache.glob("**/*.nbc")}

    here = compiled_after_a_run(FOLDER)
    assert here
    assert compiled_after_a_run(copy) == here
    with (copy / "es/kernels/images.py").open("a") as file:
        file.write("# changed\n")
    assert len(compiled_after_a_run(copy)) == 2 * len(here)
    assert compiled_after_a_run(FOLDER) > here


def test_a_held_lock_delays_but_does_not_stop(tmp_path):
    Path(tmp_path, "es-kernels").mkdir()
    with Path(tmp_path, "es-kernels/lock").open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        result = run_python(QUICK, NUMBA_CACHE_DIR=str(tmp_path))
    assert (result.returncode, result.stderr) == (0, "")
    assert list(tmp_path.glob("**/*.nbc"))


@pytest.mark.parametrize("writable", [True, False])
def test_kernels_work_without_the_users_cache_and_where_nothing_can_be_cached(tmp_path, writable):
    """Home, and sources, without write permission; a superuser is not held back by those, so the
    cache's folders are files here."""
    beside = copy_of_es(tmp_path) / "es/kernels/__pycache__"
    (tmp_path / "cache").touch()
    if not writable:
        beside.touch()
    folder = str(tmp_path / "cache")
    result = run_python(
        QUICK, tmp_path, HOME=folder, XDG_CACHE_HOME=folder, PYTHONPATH=str(tmp_path)
    )
    assert result.stderr == ""
    assert result.stdout.startswith(str(tmp_path / "es"))
    assert bool([*tmp_path.glob("**/*.nbc")]) == writable
