"""Tasks and results, and the episode loop of training, evaluation and watching."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from es.algorithm.noise import DoubleArray, FloatArray, Stream, derive_seeds, seed_shared_generators
from es.errors import MisfitError, RunError, is_interrupt, summary_of

NUMBERS = frozenset((float, int, bool, np.float64, np.float32, np.int64, np.int32))  # quick to tell
UNPERTURBED = (0, 0)  # its noise seed and sign


class Environment(Protocol):
    """What the loop uses of a Gymnasium environment."""

    def reset(self, *, seed: int | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode; return its first observation, and information."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Return observation, reward, terminated, truncated, and information."""

    def close(self) -> None:
        """Free the environment's resources."""


class Actor(Protocol):
    """A policy: bound to parameters and reset once per episode, then asked for every action."""

    def bind(self, theta: FloatArray, statistics: DoubleArray | None = None) -> None:
        """Use theta, (P,) float32, and the statistics of a `Snapshot`."""

    def reset(self, seed: int | None = None, noise_seeds: tuple[int, int] | None = None) -> None:
        """Begin the episode of a seed. noise_seeds: of noise on its actions; None: no noise."""

    def act(self, observation: Any) -> Any:
        """Return the action for the next step."""

    def observed(self) -> DoubleArray | None:
        """Return sums over the steps since the reset, (2, inputs), if observations are normalised.

        They sum the deviations from the statistics' means, and the squares of these deviations.
        """


class Recipe(NamedTuple):
    """How a process makes its environment and actor; it can be pickled.

    max_steps: the environment's own step limit, which the loop applies. param_fraction: the share
    of the parameters that a perturbation changes. reward_clip: to what each step's reward is
    clipped, in the return that an update learns from.
    """

    make_env: Callable[[], Environment]
    make_actor: Callable[[], Actor]
    max_steps: int | None = None
    param_fraction: float = 1.0
    reward_clip: tuple[float, ...] | None = None

    def cap(self, cap: int) -> int:
        """Return the smaller one of `cap` and the environment's own step limit."""
        return cap if self.max_steps is None else min(cap, self.max_steps)


class Snapshot(NamedTuple):
    """The parameters of one update's episodes. theta: (P,) float32.

    statistics: means and 1 / standard deviation, (2, inputs), if observations are normalised.
    spread: (P,) float32, each parameter's sigma relative to the common one, if they differ.
    """

    theta: FloatArray
    sigma: float
    statistics: DoubleArray | None = None
    spread: FloatArray | None = None


class Task(NamedTuple):
    """One episode to play. sign: 0 for the unperturbed parameters. cap: the step limit."""

    index: int  # type: ignore[assignment]  # hides a method of tuples
    noise_seed: int
    sign: int
    episode_seed: int
    cap: int


def training_tasks(
    seed: int,
    update: int,
    members: Sequence[tuple[int, int]],
    cap: int,
    episodes: int = 1,
    seeding: str = "pair",
) -> list[Task]:
    """Return the tasks of each member: noise seed and sign, or UNPERTURBED.

    Further members change no task of those before them. seeding: which members play the same
    episodes. pair: those with the same noise, so that returns differ by its sign alone; update:
    all; independent: none.
    """
    keys: dict[str, Sequence[object]] = {
        "pair": [noise_seed if sign else None for noise_seed, sign in members],
        "update": [0] * len(members),
        "independent": range(len(members)),
    }
    places: dict[object, int] = {}
    groups = [places.setdefault(key, len(places)) for key in keys[seeding]]
    seeds = derive_seeds(seed, update, Stream.EPISODE, len(places) * episodes)
    return [
        Task(member * episodes + k, noise_seed, sign, seeds[groups[member] * episodes + k], cap)
        for member, (noise_seed, sign) in enumerate(members)
        for k in range(episodes)
    ]


def evaluation_seeds(seed: int, update: int) -> Iterator[int]:
    """Yield the seeds of the episodes of the evaluation after `update` updates, without end."""
    done, count = 0, 100
    while True:
        yield from derive_seeds(seed, update, Stream.EVALUATION, count)[done:]
        done, count = count, 2 * count  # so that the work grows with the number of seeds alone


def evaluation_tasks(seed: int, update: int, episodes: int, cap: int) -> list[Task]:
    """Return the tasks of an evaluation of the unperturbed parameters."""
    seeds = derive_seeds(seed, update, Stream.EVALUATION, episodes)
    return [Task(index, 0, 0, episode_seed, cap) for index, episode_seed in enumerate(seeds)]


class Result(NamedTuple):
    """The result of a task. observed: as `Actor.observed` returns it.

    clipped_return: the sum of the clipped rewards, where `Recipe.reward_clip` asks for it.
    """

    index: int  # type: ignore[assignment]  # hides a method of tuples
    episode_return: float
    steps: int
    observed: DoubleArray | None = None
    clipped_return: float | None = None


class Episode(NamedTuple):
    """The outcome of one episode."""

    episode_return: float
    steps: int


def rollout(
    env: Environment, actor: Actor, seed: int, cap: int, noise_seeds: tuple[int, int] | None = None
) -> Episode:
    """Play one episode of at most `cap` steps; the outcome depends on the arguments alone.

    Raise RunError, which names the step, if a reward is no number or an observation does not fit.
    """
    seed_shared_generators(seed)
    step, act = env.step, actor.act
    total, steps = 0.0, 0
    try:
        observation, _ = env.reset(seed=seed)
        actor.reset(seed, noise_seeds)
        for steps in range(1, cap + 1):  # noqa: B007 (counted for the result)
            observation, reward, terminated, truncated, _ = step(act(observation))
            total += reward if type(reward) is float else as_number(reward)
            if terminated or truncated:
                break
    except MisfitError as error:
        played = max(0, steps - error.steps_ago)
        place = f"after step {played}" if played else "at its start"
        raise RunError(f"{place}, {error}") from error
    return Episode(total, steps)


def as_number(reward: Any) -> float:
    """Return a reward, or the only number of an array, as a float; raise MisfitError."""
    if type(reward) in NUMBERS:
        return float(reward)  # a NumPy float32 would make the sum one
    found = np.asarray(reward)
    if found.dtype.kind not in "biuf" or not found.size:
        raise MisfitError(f"its reward is {reward!r}, not a number")
    if found.size > 1:
        raise MisfitError(
            f"its reward is a vector, {found}, not a number: a wrapper has to make it one (for "
            "mo-gymnasium's environments, --env-wrapper mo_gymnasium.wrappers:LinearReward)"
        )
    return float(found.item())


def close(env: Environment) -> str:
    """Close an environment; return what is wrong with that, or "". Raise RunError of our own."""
    try:
        env.close()
    except BaseException as error:
        if isinstance(error, RunError) or is_interrupt(error):
            raise
        return f"its close() raised {summary_of(error)}"
    return ""
