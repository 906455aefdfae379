"""What all tests share: one thread per library, settings of a quick run, and the program itself."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from es.rollouts.processes import cores, limit_threads

limit_threads()  # before torch is imported, as in the program

import contextlib
import importlib.util

import pytest

# The kernels are compiled here if they are not yet, so that no test's program has to say so.
import es.environments.images
import es.networks.kernels  # noqa: F401
from es.cli import main
from es.reports import NO_CURVE
from es.rollouts.pool import WorkerPool
from es.rollouts.tasks import Recipe
from tests.fakes import recipe
from tests.processes import ROOT, descendants

ENDLESS = ("--small-net", "--env-name", "CartPole-v1", "--seed", 1, "--target-return", 501)
NEEDS_RAY = [
    pytest.mark.skipif(
        importlib.util.find_spec("ray") is None,
        reason="Ray is not installed (pip install -r requirements-ray.txt)",
    ),
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning"),
]
SEED = 7  # by which the first nine updates of this run all have a gradient
CARTPOLE = ("--small-net", "--env-name", "CartPole-v1", "--n", "4", "--seed", str(SEED))


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One more than there are cores: many tests wait for processes to start."""
    return cores() + 1


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def _without_pictures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs draw no learning curve, which takes longer than they do.

    All but those of tests that are marked `picture`.
    """
    if request.node.get_closest_marker("picture") is None:
        monkeypatch.setenv(NO_CURVE, "yes")


class Program:
    """Runs command lines in this process: quick, since nothing is imported again."""

    def __init__(self, capfd: pytest.CaptureFixture[str]) -> None:
        self._capfd = capfd

    def __call__(self, *arguments: object) -> tuple[int, str, str]:
        """Status, standard output (but for the lines that say what begins) and standard error."""
        self._capfd.readouterr()
        try:
            status = main([str(argument) for argument in arguments])
        except SystemExit as leaving:
            status = int(leaving.code or 0)
        captured = self._capfd.readouterr()
        begins = r"(No --env-name .*\n)?(Training|Loading) .* \.\.\.\n"
        return status, re.sub(f"^{begins}", "", captured.out), captured.err

    def train(self, *arguments: object) -> str:
        """Trains CartPole quickly, without worker processes, to a status of 0."""
        status, out, err = self(*CARTPOLE, "--workers", 0, *arguments)
        assert (status, err) == (0, "")
        return out


@pytest.fixture
def program(capfd: pytest.CaptureFixture[str]) -> Program:
    return Program(capfd)


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts the program in a process group of its own, which does not outlive the test."""
    started: list[subprocess.Popen[str]] = []
    # The program does not search the project's folder, where the environments of the tests lie.
    Path("tests").symlink_to(ROOT / "tests")

    def run(*arguments: object) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, str(ROOT / "main.py"), *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        for pid in [process.pid, *descendants(process.pid)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.communicate()


@pytest.fixture
def pool() -> Iterator[Callable[..., WorkerPool]]:
    """Makes pools, which do not outlive the test."""
    opened: list[WorkerPool] = []

    def make(made_of: Recipe | None = None, workers: int = 2, **more: Any) -> WorkerPool:
        pool = WorkerPool(made_of or recipe(), workers=workers, size=10, **more)
        opened.append(pool)
        return pool

    yield make
    for pool in opened:
        pool.close()


@pytest.fixture
def train(program):
    """Trains to a status of 0; the latest checkpoint."""

    def run(*flags, folder="run", workers=0):
        status, _, err = program(*flags, "--workers", workers, "--run-dir", folder)
        assert (status, err) == (0, "")
        return f"{folder}/latest.safetensors"

    return run


@pytest.fixture
def trained(train):
    """Trains for an update; the latest checkpoint."""
    quick = ("--n", 2, "--seed", 1, "--max-gradient-updates", 1)
    return lambda env_name, *flags: train("--env-name", env_name, *quick, *flags)
