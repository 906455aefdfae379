"""The one episode loop: training, evaluation and watching all play through it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from es.noise import FloatArray, Stream, derive_seeds, perturb


class Environment(Protocol):
    """What the loop needs of a Gymnasium environment."""

    def reset(self, *, seed: int | None = None) -> tuple[Any, dict[str, Any]]:
        """Starts an episode: its first observation, and more."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Observation, reward, whether the episode terminated, was truncated, and more."""

    def close(self) -> None:
        """Frees what the environment holds."""


class Actor(Protocol):
    """A policy: bound to parameters and reset once per episode, then asked for every action."""

    def bind(self, theta: FloatArray) -> None:
        """Takes over theta: (P,) float32."""

    def reset(self) -> None:
        """Forgets the previous episode."""

    def act(self, observation: Any) -> Any:
        """The action for the next step."""


class Recipe(NamedTuple):
    """How a process makes the things to play with; all of it can be pickled.

    max_steps: what the environment leaves to the loop, when its episodes are cut off.
    """

    make_env: Callable[[], Environment]
    make_actor: Callable[[], Actor]
    max_steps: int | None = None

    def cap(self, cap: int) -> int:
        """Steps per episode at most, where the user asks for `cap`."""
        return cap if self.max_steps is None else min(cap, self.max_steps)


class Snapshot(NamedTuple):
    """What one update's episodes are played with. theta: (P,) float32."""

    theta: FloatArray
    sigma: float


class Task(NamedTuple):
    """One episode to play. sign 0: the unperturbed parameters. cap: steps at most."""

    index: int  # type: ignore[assignment]  # hides a method of tuples
    noise_seed: int
    sign: int
    episode_seed: int
    cap: int


def training_tasks(
    seed: int, update: int, perturbations: Sequence[tuple[int, int]], cap: int
) -> list[Task]:
    """A task for each perturbation (noise seed, sign), then one for the unperturbed parameters.

    A pair's members play the same episode: what differs is then due to the perturbation.
    """
    episodes = derive_seeds(seed, update, Stream.EPISODE, len(perturbations) // 2 + 1)
    return [
        Task(index, noise_seed, sign, episodes[index // 2], cap)
        for index, (noise_seed, sign) in enumerate([*perturbations, (0, 0)])
    ]


def evaluation_seed(seed: int, update: int, index: int) -> int:
    """The episode seed of an evaluation's episode, for the parameters after `update` updates."""
    return derive_seeds(seed, update, Stream.EVALUATION, index + 1)[index]


def evaluation_tasks(seed: int, update: int, episodes: int, cap: int) -> list[Task]:
    """Fresh episodes for the unperturbed parameters."""
    seeds = derive_seeds(seed, update, Stream.EVALUATION, episodes)
    return [Task(index, 0, 0, episode_seed, cap) for index, episode_seed in enumerate(seeds)]


class Result(NamedTuple):
    """What comes back of a task."""

    index: int  # type: ignore[assignment]  # hides a method of tuples
    episode_return: float
    steps: int


class Episode(NamedTuple):
    """The outcome of one episode."""

    episode_return: float
    steps: int


def rollout(env: Environment, actor: Actor, seed: int, cap: int) -> Episode:
    """Plays one episode of at most `cap` steps; the outcome depends on the arguments alone."""
    observation, _ = env.reset(seed=seed)
    actor.reset()
    step, act = env.step, actor.act
    total, steps = 0.0, 0
    for steps in range(1, cap + 1):  # noqa: B007 (counted for the result)
        observation, reward, terminated, truncated, _ = step(act(observation))
        total += reward
        if terminated or truncated:
            break
    return Episode(float(total), steps)


class Player:
    """One process's environment and actor, and the buffer for the perturbed parameters."""

    def __init__(self, recipe: Recipe) -> None:
        self.env = recipe.make_env()
        self.actor = recipe.make_actor()
        self._cap = recipe.cap
        self._perturbed: FloatArray | None = None

    def play(self, snapshot: Snapshot, task: Task) -> Result:
        """Plays a task's episode with its perturbation of the snapshot's parameters."""
        if self._perturbed is None:
            self._perturbed = np.empty_like(snapshot.theta)
        perturb(snapshot.theta, task.noise_seed, task.sign, snapshot.sigma, self._perturbed)
        self.actor.bind(self._perturbed)
        cap = self._cap(task.cap)
        return Result(task.index, *rollout(self.env, self.actor, task.episode_seed, cap))
