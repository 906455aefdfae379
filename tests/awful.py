"""An environment that goes wrong where a test wants: `tests.awful:Awful-v0`."""

import threading
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from tests.fakes import start_lasting


def fail(what: str) -> Any:
    """What goes wrong: an error, a reward or an observation."""
    if what == "boom":
        raise KeyError("boom")
    if what == "exit":
        raise SystemExit(0)  # W&B replaces sys.exit
    if what == "break":
        raise KeyboardInterrupt
    return {
        "short": np.ones(2, np.float32),
        "text": "1.5",
        "none": None,
        "vector": np.ones(2),
        "alone": np.ones(1),
    }[what]


class Awful(gymnasium.Env):
    """Ends after 5 steps.

    Something goes wrong in `place`: made, reset, step, seen (the observation), paid (the reward),
    or close. first: the first time that it does; in steps and what they give, 2 is after the
    program's own try, and 7 is so for close.
    """

    observation_space = gymnasium.spaces.Box(-1, 1, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, place: str = "", what: str = "boom", first: int = 1) -> None:
        self.place, self.what, self.first = place, what, first
        self.resets = 0
        self.at("made")

    def at(self, place: str, otherwise: Any = None) -> Any:
        if place == self.place and self.resets >= self.first - 1:
            return fail(self.what)
        return otherwise

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.resets += 1
        self.steps = 0
        self.at("reset")
        return np.zeros(3, np.float32), {}

    def step(self, action: int) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self.steps += 1
        observation, reward = np.zeros(3, np.float32), float(action)
        if self.steps == 3 or self.first == 1:
            self.at("step")
            observation, reward = self.at("seen", observation), self.at("paid", reward)
        return observation, reward, self.steps == 5, False, {}

    def close(self) -> None:
        self.at("close")


class Leaving(Awful):
    """Leaves a thread and a process running, whose id it adds to the file `pids`."""

    def __init__(self) -> None:
        super().__init__()
        threading.Thread(target=threading.Event().wait, name="pump").start()
        with Path("pids").open("a") as pids:
            pids.write(f"{start_lasting().pid}\n")


gymnasium.register("Awful-v0", "tests.awful:Awful")
gymnasium.register("Leaving-v0", "tests.awful:Leaving")
