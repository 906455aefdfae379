"""Learn a task with another library, as its users would; benchmarks.solve starts it.

The last line is the outcome as JSON: whether the target was reached, and the seconds that went
into evaluations. Settings come from solvers.toml.
"""

import contextlib
import json
import logging
import os
import sys
import tomllib
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

from benchmarks.judge import Job, Judge, Over
from es.rollouts.processes import cores


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
    """Train for so many steps as RL-Zoo does, with its settings.

    further: more arguments of `learn`, from what makes environments and the model.
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
    discrete = isinstance(job.make().action_space, Discrete)
    while True:
        searcher.step()
        policy = problem.to_policy(searcher.status["center"])

        def act(observations: np.ndarray, policy: Any = policy) -> np.ndarray:
            with torch.inference_mode():
                outputs = policy(torch.as_tensor(observations, dtype=torch.float32)).numpy()
            return outputs.argmax(-1) if discrete else outputs

        judge(act)


def evosax(job: Job, judge: Judge) -> None:
    """OpenAI's evolution strategy of evosax, on gymnax's version of the task."""
    import jax
    import optax
    from evosax.algorithms import Open_ES
    from evosax.problems import GymnaxProblem
    from evosax.problems.networks import MLP, categorical_output_fn, identity_output_fn

    settings, space = job.settings, job.make().action_space
    count = int(space.n) if isinstance(space, Discrete) else (space.shape or ())[0]
    sizes = (*settings["layers"], count)
    output = categorical_output_fn if isinstance(space, Discrete) else identity_output_fn
    problem = GymnaxProblem(
        job.task, MLP(sizes, output_fn=output), num_rollouts=settings["rollouts"]
    )
    key, *keys = jax.random.split(jax.random.key(job.seed), 4)
    evaluated, solution = problem.init(keys[0]), problem.sample(keys[1])
    search = Open_ES(
        settings["population"], solution, optimizer=optax.adam(settings["learning_rate"]),
        std_schedule=optax.constant_schedule(settings["sigma"]),
    )  # fmt: skip
    params = search.default_params
    state = search.init(keys[2], solution, params)
    ask, tell, evaluate = jax.jit(search.ask), jax.jit(search.tell), jax.jit(problem.eval)
    apply = jax.jit(MLP(sizes, output_fn=identity_output_fn).apply)
    while True:
        key, *keys = jax.random.split(key, 4)
        population, state = ask(keys[0], state, params)
        fitness, evaluated, _ = evaluate(keys[1], population, evaluated)
        state, _ = tell(keys[2], population, -fitness, state, params)  # it minimises
        mean, std, center = evaluated.obs_mean, evaluated.obs_std, search.get_mean(state)

        def act(observations: np.ndarray, at: Any = (mean, std, center)) -> np.ndarray:
            mean, std, center = at
            outputs = np.asarray(apply(center, (observations - mean) / std))
            if isinstance(space, Box):
                return outputs.clip(space.low, space.high)
            return outputs.argmax(-1)

        judge(act)


LEARNERS: dict[str, Callable[[Job, Judge], None]] = {
    "ppo": ppo, "ars": ars, "evotorch": evotorch, "evosax": evosax
}  # fmt: skip


def settings_of(library: str, task: str) -> dict[str, Any] | None:
    """Return a library's settings for a task, or None if it has none or not the task."""
    spec = gymnasium.registry.get(task)
    if not spec or not str(spec.entry_point).startswith("gymnasium.envs."):
        return None  # the others would have to be told where it comes from
    with (Path(__file__).parent / "solvers.toml").open("rb") as file:
        tasks = tomllib.load(file)[library]
    return tasks.get(task, tasks.get("any"))


def main(library: str, task: str, seed: str, target: str, limit: str) -> None:
    """Learn; the program's remains are the caller's to end."""
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
