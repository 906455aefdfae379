"""The one loop that plays an episode: in training, evaluation and --test."""

from typing import Any, NamedTuple, Protocol

import numpy as np

from es.algorithm.noise import DoubleArray, FloatArray, seed_shared_generators
from es.errors import MisfitError, RunError, is_interrupt

# The common types of rewards, which are recognised without NumPy.
NUMBERS = frozenset((float, int, bool, np.float64, np.float32, np.int64, np.int32))


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
            f"its reward is a vector, {found}, not a number. Use a wrapper that returns one number "
            "(for mo-gymnasium's environments: --env-wrapper mo_gymnasium.wrappers:LinearReward)"
        )
    return float(found.item())


def close(env: Environment) -> None:
    """Close an environment. Ignore its own errors, since its episodes have been played."""
    try:
        env.close()
    except BaseException as error:
        if isinstance(error, RunError) or is_interrupt(error):  # such as a video's error
            raise
