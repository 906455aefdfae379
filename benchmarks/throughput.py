"""How close rollouts come to the environment alone, and where their time goes.

Each round plays some tasks of a population as a worker does. It then plays the same episodes again
from recorded actions: with the bare environment (the unwrapped Gymnasium environment, or the Atari
emulator without its screen), with the environment as rollouts have it, with the policy alone on
the recorded observations, and with its torch module. What remains of the time of the rollouts is
the engine's: noise, parameters, the loop. Several processes do this side by side, each on its own
core. Figures are medians over the rounds.
"""

import argparse
import multiprocessing
import operator
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import ale_py
import numpy as np
import torch

from es import count_outputs, model
from es.algorithm.strategy import Strategy
from es.config import Config, flag_with_value
from es.envs import make_env
from es.networks.custom import with_state
from es.policy import Policy, make_policy
from es.rollouts.player import InProcessPool, Player
from es.rollouts.processes import cores, limit_threads
from es.rollouts.tasks import UNPERTURBED, Snapshot, Task, Tasks, each_task, training_tasks

HEADER = """\
| environment | after updates | steps per episode | processes | bare steps/s | steps/s | ratio \
| us: environment | preprocessing | policy | engine | torch's policy / ours |
|---|---|---|---|---|---|---|---|---|---|---|---|"""


class Case(NamedTuple):
    """An environment and the population that is timed: after so many updates, so many episodes.

    settings: of the `Config`, besides the environment.
    """

    name: str
    updates: int
    episodes: int
    settings: Mapping[str, Any] = {}

    def __str__(self) -> str:
        return " ".join([self.name, *map(flag_with_value, self.settings, self.settings.values())])


CASES = (
    Case("CartPole-v1", 0, 40),
    Case("CartPole-v1", 10, 40),
    Case("CartPole-v1", 40, 10),
    Case("Acrobot-v1", 0, 10),
    Case("Taxi-v4", 0, 10),
    Case("HalfCheetah-v5", 0, 4),
    Case("HalfCheetah-v5", 0, 4, {"obs_norm": True}),
    Case("HalfCheetah-v5", 0, 4, {"hidden_sizes": (256, 256)}),
    Case("HalfCheetah-v5", 0, 4, {"net": "benchmarks.throughput:EagerMLP"}),
    Case("PongDeterministic-v4", 0, 1),
)


class EagerMLP(model.MLP):
    """The MLP with two hidden layers of 256 units as a custom network, in eager torch."""

    def __init__(self, observations: Any, actions: Any) -> None:
        super().__init__(observations.shape[0], count_outputs(actions), (256, 256))

    def forward(self, observation: torch.Tensor, state: None = None) -> tuple[torch.Tensor, None]:
        """Return the outputs."""
        return super().forward(observation)


class Episode(NamedTuple):
    """What is needed to play an episode again."""

    seed: int
    actions: list[Any]
    observations: list[np.ndarray]


def record(player: Player, snapshot: Snapshot, task: Task) -> Episode:
    """Play a task; return what its policy saw and did."""
    actor, episode = player.actor, Episode(task.episode_seed, [], [])
    act = actor.act

    def recording(observation: np.ndarray) -> Any:
        episode.observations.append(observation.copy())
        episode.actions.append(act(observation))
        return episode.actions[-1]

    actor.act = recording  # type: ignore[method-assign]
    player.play(snapshot, task)
    del actor.act
    return episode


def replay_bare(env: Any, episodes: Sequence[Episode]) -> None:
    """Play recorded actions on the environment itself, which is the least that a rollout costs."""
    if not isinstance(env, ale_py.AtariEnv):
        replay(env, episodes)
        return
    ale, skip, codes = env.ale, range(env._frameskip), env._action_set
    for episode in episodes:
        ale.reset_game()
        for action in episode.actions:
            code = codes[action]
            for _ in skip:
                ale.act(code)


def replay(env: Any, episodes: Sequence[Episode]) -> None:
    """Play recorded actions."""
    step = env.step
    for episode in episodes:
        env.reset(seed=episode.seed)
        for action in episode.actions:
            step(action)


def think(actor: Any, episodes: Sequence[Episode]) -> None:
    """Choose actions for recorded observations."""
    act = actor.act
    for episode in episodes:
        actor.reset()
        for observation in episode.observations:
            act(observation)


def think_in_torch(module: torch.nn.Module, episodes: Sequence[Episode]) -> None:
    """Choose actions for recorded observations with the torch module."""
    for episode in episodes:
        state = None
        for observation in episode.observations:
            outputs, state = with_state(module(torch.from_numpy(observation).float(), state))
            int(outputs.argmax())


def population(case: Case) -> tuple[Policy, Snapshot, Tasks]:
    """Return policy, parameters and tasks as they are after a case's updates (seed 1)."""
    policy = make_policy(Config(env_name=case.name, seed=1, **case.settings), None)
    snapshot = Snapshot(policy.theta, 0.05, policy.statistics)
    strategy = Strategy(policy.theta, Config(n=40, sigma=0.05, lr=0.1, seed=1))
    pool = InProcessPool(policy.recipe)
    tasks = training_tasks(1, 0, [*strategy.ask(), UNPERTURBED], 100_000)
    for update in range(1, case.updates + 1):
        results = pool.evaluate(snapshot, tasks[:-1])
        strategy.tell(results["episode_return"])
        tasks = training_tasks(1, update, [*strategy.ask(), UNPERTURBED], 100_000)
    pool.close()
    return policy, snapshot, tasks


def measure(case: Case, rounds: int, number: int, barrier: Any, results: Any) -> None:
    """Time one process's rounds; send the seconds per step of each kind, a list of dicts."""
    policy, snapshot, tasks = population(case)
    wanted = (case.episodes * number + np.arange(case.episodes)) % len(tasks)
    chosen = [task for _, _, task in each_task(tasks[wanted])]
    player, bare = Player(policy.recipe), make_env(policy.environment).unwrapped
    bare.reset(seed=0)
    episodes = [record(player, snapshot, task) for task in chosen]
    steps = sum(len(episode.actions) for episode in episodes)

    def rollouts() -> None:
        for task in chosen:
            player.play(snapshot, task)

    functions: dict[str, Callable[[], None]] = {
        "rollouts": rollouts,
        "bare": partial(replay_bare, bare, episodes),
        "environment": partial(replay, player.env, episodes),
        "policy": partial(think, player.actor, episodes),
        "torch": partial(think_in_torch, policy.module(), episodes),
    }
    figures: list[dict[str, float]] = []
    for _ in range(rounds + 1):  # the first warms up
        figures.append({})
        for kind, function in functions.items():
            barrier.wait(timeout=300)
            start = time.perf_counter()
            function()
            figures[-1][kind] = (time.perf_counter() - start) / steps
    results.put((figures[1:], steps / len(episodes)))


def run(case: Case, processes: int, rounds: int) -> str:
    """Return a case's row: steps per second of all processes, and microseconds of one step."""
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(processes), context.Queue()
    started = [
        context.Process(target=measure, args=(case, rounds, number, barrier, results))
        for number in range(processes)
    ]
    for process in started:
        process.start()
    measured, lengths = zip(*[results.get(timeout=600) for _ in started], strict=True)
    for process in started:
        process.join()
    # The speed of a round is the sum over the processes.
    rollouts, bare = (
        [sum(1 / figures[i][kind] for figures in measured) for i in range(rounds)]
        for kind in ("rollouts", "bare")
    )
    us = {
        kind: 1e6 * statistics.median(figure[kind] for figures in measured for figure in figures)
        for kind in measured[0][0]
    }
    ratio = statistics.median(map(operator.truediv, rollouts, bare))
    engine = us["rollouts"] - us["environment"] - us["policy"]
    return (
        f"| {case} | {case.updates} | {statistics.mean(lengths):.0f} | {processes} | "
        f"{statistics.median(bare):.0f} | {statistics.median(rollouts):.0f} | "
        f"{ratio:.2f} | {us['bare']:.2f} | {us['environment'] - us['bare']:.2f} | "
        f"{us['policy']:.2f} | {engine:.2f} | {us['torch'] / us['policy']:.1f} |"
    )


def main() -> None:
    """Print a row per environment and number of processes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    names = sorted({case.name for case in CASES})
    parser.add_argument("--env", help="only this environment", choices=names)
    arguments = parser.parse_args()
    limit_threads()  # of the processes started
    print(HEADER)
    for case in CASES:
        if arguments.env in (None, case.name):
            for processes in sorted({1, cores()}):
                print(run(case, processes, arguments.rounds), flush=True)


if __name__ == "__main__":
    main()
