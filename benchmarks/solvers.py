"""Train a task with another library, as its users would; benchmarks.solve starts this program.

The last line is the outcome as JSON: whether the target was reached, and the seconds that
evaluations took. Settings come from solvers.toml.
"""

import contextlib
import json
import logging
import os
import sys
import time
import tomllib
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.spaces import Discrete

from es.rollouts.processes import cores

EPISODES, FIRST, SEED = 100, 5, 1_000_000  # of an evaluation
PATIENCE = 1.05  # evaluate when training has taken this many times as long as at the last one

Act = Callable[[np.ndarray], np.ndarray]  # (N, ...) observations -> N actions


class Job(NamedTuple):
    """A task, and a library's settings for it."""

    task: str
    seed: int
    settings: dict[str, Any]


def play(job: Job, act: Act, seeds: range) -> list[float]:
    """Play an episode for each seed, side by side; return their returns."""
    envs = {seed: gymnasium.make(job.task) for seed in seeds}
    observations = {seed: env.reset(seed=seed)[0] for seed, env in envs.items()}
    returns = dict.fromkeys(seeds, 0.0)
    while envs:
        actions = act(np.stack([observations[seed] for seed in envs]))
        for (seed, env), action in zip([*envs.items()], actions, strict=True):
            observations[seed], reward, terminated, truncated, _ = env.step(action)
            returns[seed] += float(reward)
            if terminated or truncated:
                envs.pop(seed).close()
    return [*returns.values()]


class Over(Exception):  # noqa: N818 - it ends a run as planned
    """The target is reached, or the time is up."""


class Judge:
    """Evaluate a policy after an update, if training took PATIENCE times as long as before.

    target: of the mean of EPISODES fresh episodes. limit: seconds of training.
    """

    def __init__(self, job: Job, target: float, limit: float) -> None:
        self._job, self._target, self._limit = job, target, limit
        self._begin, self._due = time.perf_counter(), 0.0
        self.judging, self.solved = 0.0, False

    def __call__(self, act: Act) -> None:
        """Raise Over if the target is reached or the time is up."""
        now = time.perf_counter()
        trained = now - self._begin - self.judging
        if trained >= self._due:
            self._due = trained * PATIENCE
            returns = play(self._job, act, range(SEED, SEED + FIRST))
            # Five episodes can show that a hundred would be a waste of time.
            if np.mean(returns) + 2 * np.std(returns) / np.sqrt(FIRST - 1) >= self._target:
                returns += play(self._job, act, range(SEED + FIRST, SEED + EPISODES))
                self.solved = bool(np.mean(returns) >= self._target)
            self.judging += time.perf_counter() - now
        if self.solved or trained > self._limit:
            raise Over


def ppo(job: Job, judge: Judge) -> None:
    """Stable-Baselines3's PPO, in one process as RL-Zoo has it."""
    from stable_baselines3 import PPO

    with_sb3(PPO, job, judge)


def ars(job: Job, judge: Judge) -> None:
    """Augmented Random Search of sb3-contrib, with a process for each core."""
    from sb3_contrib import ARS
    from sb3_contrib.common.vec_env import AsyncEval

    with_sb3(
        ARS, job, judge,
        lambda make, model: {"async_eval": AsyncEval([make] * cores(), model.policy)},
    )  # fmt: skip


def with_sb3(
    algorithm: type, job: Job, judge: Judge, further: Callable[..., dict[str, Any]] | None = None
) -> None:
    """Train for as many steps as RL-Zoo does, with its settings.

    further: returns more arguments of `learn`, given a function that makes environments and the
    model.
    """
    import torch
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.utils import LinearSchedule
    from stable_baselines3.common.vec_env import VecEnv, VecNormalize

    settings = dict(job.settings)
    normalize, count = settings.pop("normalize", None), settings.pop("n_envs", 1)
    steps = int(settings.pop("n_timesteps"))
    for name, value in settings.items():
        if isinstance(value, str) and value.startswith("lin_"):
            settings[name] = LinearSchedule(float(value[4:]), 0.0, 1.0)
    network = settings.get("policy_kwargs", {})
    if "activation_fn" in network:
        network["activation_fn"] = getattr(torch.nn, network["activation_fn"])

    def make() -> VecEnv:
        made = make_vec_env(job.task, n_envs=count, seed=job.seed)
        if normalize is None:
            return made
        return VecNormalize(made, **{"gamma": settings.get("gamma", 0.99), **normalize})

    env = make()
    model = algorithm(env=env, seed=job.seed, device="cpu", **settings)

    def act(observations: np.ndarray) -> np.ndarray:
        if isinstance(env, VecNormalize):
            observations = env.normalize_obs(observations)
        return model.predict(observations, deterministic=True)[0]

    class EachUpdate(BaseCallback):
        def _on_step(self) -> bool:
            return True

        def _on_rollout_start(self) -> None:
            judge(act)

    more = further(make, model) if further else {}
    model.learn(steps, callback=EachUpdate(), log_interval=10**9, **more)
    judge(act)


def evotorch(job: Job, judge: Judge) -> None:
    """EvoTorch's PGPE with ClipUp on GymNE, with an actor for each core."""
    import torch
    from evotorch.algorithms import PGPE
    from evotorch.neuroevolution import GymNE

    logging.disable()
    torch.manual_seed(job.seed)
    problem = GymNE(job.task, num_actors=cores(), **job.settings["problem"])
    searcher = PGPE(problem, **job.settings["search"])
    discrete = isinstance(gymnasium.make(job.task).action_space, Discrete)
    while True:
        searcher.step()
        policy = problem.to_policy(searcher.status["center"])

        def act(observations: np.ndarray, policy: Any = policy) -> np.ndarray:
            with torch.inference_mode():
                outputs = policy(torch.as_tensor(observations, dtype=torch.float32)).numpy()
            return outputs.argmax(-1) if discrete else outputs

        judge(act)


LEARNERS: dict[str, Callable[[Job, Judge], None]] = {
    "ppo": ppo, "ars": ars, "evotorch": evotorch
}  # fmt: skip


def settings_of(library: str, task: str) -> dict[str, Any] | None:
    """Return a library's settings for a task, or None if it has none."""
    with (Path(__file__).parent / "solvers.toml").open("rb") as file:
        tasks = tomllib.load(file)[library]
    return tasks.get(task, tasks.get("any"))


def main(library: str, task: str, seed: str, target: str, limit: str) -> None:
    """Train, print the outcome and leave without waiting for the library's processes."""
    warnings.simplefilter("ignore")
    settings = settings_of(library, task)
    assert settings is not None
    job = Job(task, int(seed), settings)
    judge = Judge(job, float(target), float(limit))
    with contextlib.suppress(Over):
        LEARNERS[library](job, judge)
    print(json.dumps({"solved": judge.solved, "judging": judge.judging}), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
