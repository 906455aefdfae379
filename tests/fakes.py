"""Environments and actors made for the tests; top-level, so that workers can import them."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from es.algorithm.noise import FloatArray
from es.rollouts.tasks import Recipe, Results, Snapshot, Tasks, make_tasks


class Counting:
    """Pays the action for `length` steps, and a thousandth of the episode seed at the end."""

    def __init__(self, length: int = 5, seconds: float = 0.0, log: str | None = None) -> None:
        self.length, self.seconds, self.log = length, seconds, log
        self.steps = self.seed = 0
        self.note("made")

    def reset(self, *, seed: int | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        self.steps, self.seed = 0, seed or 0
        return np.zeros(3, np.float32), {}

    def step(self, action: float) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        if self.seconds:
            time.sleep(self.seconds)
        over = self.steps >= self.length
        return np.full(3, self.steps, np.float32), self.reward(action, over), over, False, {}

    def reward(self, action: float, over: bool) -> float:
        return action + (self.seed * 0.001 if over else 0.0)

    def close(self) -> None:
        self.note("closed")

    def note(self, event: str) -> None:
        if self.log:
            with Path(self.log).open("a") as file:
                file.write(f"{event}\n")


class Moody(Counting):
    """Fails in an episode whose seed is 13."""

    def reward(self, action: float, over: bool) -> float:
        if self.seed == 13:
            self.fail()
        return super().reward(action, over)

    def fail(self) -> None:
        raise NotImplementedError


class Raising(Moody):
    def fail(self) -> None:
        raise ValueError("unlucky")


class Hanging(Moody):
    def fail(self) -> None:
        time.sleep(3600)


class Killed(Moody):
    def fail(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class Exiting(Moody):
    def fail(self) -> None:
        os._exit(3)


class Refusing(Counting):
    """Cannot be made three times; after that, it is made once there is a file `go`."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        for number in range(3):
            with suppress(FileExistsError):
                Path(folder, str(number)).touch(exist_ok=False)
                raise ValueError("no licence")
        while not Path(folder, "go").exists():
            time.sleep(0.01)


class Exclusive(Counting):
    """Cannot be made while another one exists."""

    def __init__(self, folder: str) -> None:
        super().__init__(seconds=0.002)
        Path(folder, "taken").touch(exist_ok=False)


class Forking(Counting):
    """Starts a process by multiprocessing in each episode."""

    def reset(self, *, seed: int | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        process = multiprocessing.get_context("fork").Process(target=int)
        process.start()
        process.join()
        return super().reset(seed=seed)


def start_lasting() -> subprocess.Popen[bytes]:
    """A process that does nothing for long."""
    words = [sys.executable, "-c", "import time; time.sleep(600)"]
    return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


class Starting(Counting):
    """Leaves a process running, whose id it adds to a file; seed 14 hangs.

    forks: the process has the files of this one open.
    """

    def __init__(self, pids: str, seconds: float = 0.0, *, forks: bool = False) -> None:
        super().__init__(seconds=seconds)
        if forks:
            context = multiprocessing.get_context("fork")
            process: Any = context.Process(target=time.sleep, args=(600,))
            process.start()
        else:
            process = start_lasting()
        with Path(pids).open("a") as file:
            file.write(f"{process.pid}\n")

    def reward(self, action: float, over: bool) -> float:
        if self.seed == 14:
            time.sleep(60)
        return super().reward(action, over)


class Summing:
    """Acts with the sum of its parameters."""

    def bind(self, theta: FloatArray, statistics: Any = None) -> None:
        self.total = float(theta.sum(dtype=np.float64))

    def reset(self, seed: Any = None, noise_seeds: Any = None) -> None:
        pass

    def observed(self) -> None:
        return None

    def act(self, observation: Any) -> float:
        return self.total


def recipe(env: type = Counting, *arguments: Any, **keywords: Any) -> Recipe:
    return Recipe(partial(env, *arguments, **keywords), Summing)


SNAPSHOT = Snapshot(np.linspace(0, 1, 10, dtype=np.float32), 0.1)
TASKS = make_tasks([(100 + i // 2, 1 - 2 * (i % 2)) for i in range(10)], range(10), 1000)


def tasks_with(*episode_seeds: int) -> Tasks:
    """The tasks again and again, with these episode seeds."""
    tasks = np.resize(TASKS, len(episode_seeds))
    tasks["episode_seed"] = episode_seeds
    return tasks


UNLUCKY = tasks_with(0, 1, 2, 3, 4, 13)


def same_results(first: Results, second: Results) -> bool:
    """Whether results are the same to the bit, but for the numbers of their batches."""
    names = [name for name in first.dtype.names or () if name != "batch"]
    return all(first[name].tobytes() == second[name].tobytes() for name in names)
