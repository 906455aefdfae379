"""The one episode loop: training, evaluation and watching all play through it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from es.noise import DoubleArray, FloatArray, Stream, derive_seeds, perturb, seed_shared_generators


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

    def bind(self, theta: FloatArray, statistics: DoubleArray | None = None) -> None:
        """Takes over theta: (P,) float32, and the statistics that normalise observations."""

    def reset(self, noise_seeds: tuple[int, int] | None = None) -> None:
        """Forgets the previous episode. noise_seeds: for noise on the actions of the next one."""

    def act(self, observation: Any) -> Any:
        """The action for the next step."""

    def observed(self) -> DoubleArray | None:
        """(2, inputs): what was seen since the reset, where observations are normalised.

        The sums, and those of the squares, of deviations from the means that it is bound to.
        """


class Recipe(NamedTuple):
    """How a process makes the things to play with; all of it can be pickled.

    max_steps: what the environment leaves to the loop, when its episodes are cut off.
    param_fraction: of the parameters that a perturbation changes.
    """

    make_env: Callable[[], Environment]
    make_actor: Callable[[], Actor]
    max_steps: int | None = None
    param_fraction: float = 1.0

    def cap(self, cap: int) -> int:
        """Steps per episode at most, where the user asks for `cap`."""
        return cap if self.max_steps is None else min(cap, self.max_steps)


class Snapshot(NamedTuple):
    """What one update's episodes are played with. theta: (P,) float32.

    statistics: (2, inputs), means and 1 / standard deviation of the observations, where these are
    normalised.
    """

    theta: FloatArray
    sigma: float
    statistics: DoubleArray | None = None


class Task(NamedTuple):
    """One episode to play. sign 0: the unperturbed parameters. cap: steps at most."""

    index: int  # type: ignore[assignment]  # hides a method of tuples
    noise_seed: int
    sign: int
    episode_seed: int
    cap: int


def training_tasks(
    seed: int,
    update: int,
    perturbations: Sequence[tuple[int, int]],
    cap: int,
    episodes: int = 1,
    seeding: str = "pair",
) -> list[Task]:
    """So many tasks for each perturbation (noise seed, sign), then for the unperturbed parameters.

    seeding: who plays the same episodes. pair: perturbations by the same noise, so that what
    differs is due to its sign; update: all; independent: none.
    """
    members = [*perturbations, (0, 0)]
    if seeding == "independent":
        groups = list(range(len(members)))
    elif seeding == "update":
        groups = [0] * len(members)
    else:
        places: dict[int, int] = {}
        groups = [places.setdefault(noise_seed, len(places)) for noise_seed, _ in perturbations]
        groups.append(len(places))
    seeds = derive_seeds(seed, update, Stream.EPISODE, (max(groups) + 1) * episodes)
    return [
        Task(member * episodes + k, noise_seed, sign, seeds[groups[member] * episodes + k], cap)
        for member, (noise_seed, sign) in enumerate(members)
        for k in range(episodes)
    ]


def evaluation_seed(seed: int, update: int, index: int) -> int:
    """The episode seed of an evaluation's episode, for the parameters after `update` updates."""
    return derive_seeds(seed, update, Stream.EVALUATION, index + 1)[index]


def evaluation_tasks(seed: int, update: int, episodes: int, cap: int) -> list[Task]:
    """Fresh episodes for the unperturbed parameters."""
    seeds = derive_seeds(seed, update, Stream.EVALUATION, episodes)
    return [Task(index, 0, 0, episode_seed, cap) for index, episode_seed in enumerate(seeds)]


class Result(NamedTuple):
    """What comes back of a task.

    observed: (2, inputs), as of `Actor.observed`.
    """

    index: int  # type: ignore[assignment]  # hides a method of tuples
    episode_return: float
    steps: int
    observed: DoubleArray | None = None


class Episode(NamedTuple):
    """The outcome of one episode."""

    episode_return: float
    steps: int


def rollout(
    env: Environment,
    actor: Actor,
    seed: int,
    cap: int,
    noise_seeds: tuple[int, int] | None = None,
) -> Episode:
    """Plays one episode of at most `cap` steps; the outcome depends on the arguments alone."""
    seed_shared_generators(seed)
    observation, _ = env.reset(seed=seed)
    actor.reset(noise_seeds)
    step, act = env.step, actor.act
    total, steps = 0.0, 0
    for steps in range(1, cap + 1):  # noqa: B007 (counted for the result)
        observation, reward, terminated, truncated, _ = step(act(observation))
        total += float(reward)  # which would stay in single precision
        if terminated or truncated:
            break
    return Episode(total, steps)


class Player:
    """One process's environment and actor, and the buffer for the perturbed parameters."""

    def __init__(self, recipe: Recipe) -> None:
        self.env = recipe.make_env()
        self.actor = recipe.make_actor()
        self._cap, self._param_fraction = recipe.cap, recipe.param_fraction
        self._perturbed: FloatArray | None = None

    def play(self, snapshot: Snapshot, task: Task) -> Result:
        """Plays a task's episode with its perturbation of the snapshot's parameters."""
        theta, sigma, statistics = snapshot
        if self._perturbed is None:
            self._perturbed = np.empty_like(theta)
        perturb(theta, task.noise_seed, task.sign, sigma, self._perturbed, self._param_fraction)
        self.actor.bind(self._perturbed, statistics)
        noise_seeds = (task.noise_seed, task.episode_seed) if task.sign else None
        episode = rollout(self.env, self.actor, task.episode_seed, self._cap(task.cap), noise_seeds)
        return Result(task.index, *episode, self.actor.observed())
