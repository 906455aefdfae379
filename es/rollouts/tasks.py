"""A batch of episodes to play and its results, as arrays, and the interface of all pools."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from es.algorithm.noise import DoubleArray, FloatArray, Stream, derive_seeds
from es.rollouts.episode import Actor, Environment

# A batch, (k,), one record for each episode. Pools set the first two fields: the batch's number,
# and the position in the batch. 64 bytes divide the pages of a pipe, so records are read whole.
TASK = np.dtype(
    [(name, np.int64) for name in ("batch", "index", "noise_seed", "sign", "episode_seed", "cap")]
    + [("unused", "V16")]
)
Tasks = npt.NDArray[np.void]
Results = npt.NDArray[np.void]  # (k,) of `result_type`
Progress = Callable[[int], None]  # called with the number of episodes that are done

UNPERTURBED = (0, 0)  # noise seed and sign of the unperturbed parameters
FAILURES = 3  # give up after this many failures of one task, or of consecutive process starts


class Recipe(NamedTuple):
    """How a process makes its environment and actor. It can be pickled.

    max_steps: the environment's own step limit, which the loop applies. param_fraction: the share
    of the parameters that a perturbation changes. reward_clip: the range that each step's reward is
    clipped to, in the return that an update learns from.
    """

    make_env: Callable[[], Environment]
    make_actor: Callable[[], Actor]
    max_steps: int | None = None
    param_fraction: float = 1.0
    reward_clip: tuple[float, ...] | None = None

    def cap(self, cap: int) -> int:
        """Return the smaller one of `cap` and the environment's own step limit."""
        return cap if self.max_steps is None else min(cap, self.max_steps)


class ByValue:
    """A callable that can be pickled, with the classes and functions of `__main__` that it needs.

    What lies in a module is imported by its name. names: objects that get these names in the
    `__main__` of the process that calls it, where "__main__:Name" is then found. Raise what
    cloudpickle raises if something cannot be pickled.
    """

    def __init__(self, function: Callable[[], Any], names: Mapping[str, Any] | None = None) -> None:
        import cloudpickle

        self._pickled = cloudpickle.dumps((function, names or {}))

    def __call__(self) -> Any:
        """Return what the function returns."""
        import cloudpickle

        import __main__

        function, names = cloudpickle.loads(self._pickled)
        vars(__main__).update(names)
        return function()


class Snapshot(NamedTuple):
    """The parameters of a batch. theta: (P,) float32.

    statistics: means and 1 / standard deviation, (2, inputs), if observations are normalised.
    relative_sigma: (P,) float32, each parameter's sigma over the common one, if they differ.
    """

    theta: FloatArray
    sigma: float
    statistics: DoubleArray | None = None
    relative_sigma: FloatArray | None = None

    def results(self, count: int) -> Results:
        """Return `count` empty results of episodes with these parameters."""
        inputs = 0 if self.statistics is None else self.statistics.shape[1]
        return np.zeros(count, result_type(inputs))


class Task(NamedTuple):
    """One episode to play. sign: 0 for the unperturbed parameters. cap: the step limit."""

    noise_seed: int
    sign: int
    episode_seed: int
    cap: int

    def __str__(self) -> str:
        noise = f"noise seed {self.noise_seed} and sign {self.sign:+d}" if self.sign else "no noise"
        return f"the episode of seed {self.episode_seed} with {noise}"


def result_type(inputs: int) -> np.dtype[np.void]:
    """Return the type of a result; its first two fields are those of its task.

    clipped_return: the sum of the rewards, clipped if `Recipe.reward_clip` asks for it. observed:
    as `Actor.observed` returns it; inputs: the size of observations that are normalised, or 0.
    """
    return np.dtype(
        [
            ("batch", np.int64),
            ("index", np.int64),
            ("episode_return", np.float64),
            ("clipped_return", np.float64),
            ("steps", np.int64),
            ("observed", np.float64, (2, inputs)),
        ]
    )


def make_tasks(
    members: npt.ArrayLike, episode_seeds: Sequence[int] | npt.NDArray[np.int64], cap: int
) -> Tasks:
    """Return a task for each of k episodes. members: their noise seeds and signs, (k, 2)."""
    tasks = np.zeros(len(episode_seeds), TASK)
    tasks["noise_seed"], tasks["sign"] = np.asarray(members, np.int64).reshape(-1, 2).T
    tasks["episode_seed"], tasks["cap"] = episode_seeds, cap
    return tasks


def each_task(tasks: Tasks) -> Iterator[tuple[int, int, Task]]:
    """Yield each task with its batch and index."""
    for batch, index, *task, _ in tasks.tolist():
        yield batch, index, Task._make(task)


def training_tasks(
    seed: int,
    update: int,
    members: Sequence[tuple[int, int]],
    cap: int,
    episodes: int = 1,
    seeding: str = "pair",
) -> Tasks:
    """Return the tasks of n members, (n * episodes,), those of one member side by side.

    members: the noise seed and the sign of each, or UNPERTURBED. Further members change no task of
    those before them. seeding: the members that play the same episodes. pair: those with the same
    noise, so that returns differ by its sign alone; update: all; independent: none.
    """
    keys: dict[str, Sequence[object]] = {
        "pair": [noise_seed if sign else None for noise_seed, sign in members],
        "update": [0] * len(members),
        "independent": range(len(members)),
    }
    places: dict[object, int] = {}
    groups = [places.setdefault(key, len(places)) for key in keys[seeding]]
    seeds = np.array(derive_seeds(seed, update, Stream.EPISODE, len(places) * episodes))
    each = seeds.reshape(-1, episodes)[groups].reshape(-1)
    return make_tasks(np.repeat(np.asarray(members), episodes, axis=0), each, cap)


def evaluation_tasks(seed: int, update: int, episodes: int, cap: int) -> Tasks:
    """Return the tasks of an evaluation of the unperturbed parameters, (episodes,)."""
    seeds = derive_seeds(seed, update, Stream.EVALUATION, episodes)
    return make_tasks([UNPERTURBED] * episodes, seeds, cap)


class Pool(ABC):
    """Plays batches of tasks. After an exception it can only be closed."""

    _submitted: tuple[Snapshot, Tasks]

    def submit(self, snapshot: Snapshot, tasks: Tasks) -> None:
        """Play tasks, now or when `results` asks for them. The previous batch is abandoned.

        The snapshot must not change until the results are there.
        """
        self._submitted = snapshot, tasks

    @abstractmethod
    def results(self, progress: Progress | None = None) -> Results:
        """Wait for the results of the submitted tasks and return them, (k,), in task order.

        progress: called again and again. Raise TaskError if an episode cannot be played.
        """

    def evaluate(
        self, snapshot: Snapshot, tasks: Tasks, progress: Progress | None = None
    ) -> Results:
        """Submit tasks and return their results."""
        self.submit(snapshot, tasks)
        return self.results(progress)

    @abstractmethod
    def describe(self) -> str:
        """Return the number of workers in words, for the live line."""

    @abstractmethod
    def close(self) -> None:
        """End all workers without waiting for their episodes. May be called again."""
