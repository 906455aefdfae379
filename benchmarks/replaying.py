"""Episodes that are played again from what was recorded of them."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import ale_py
import numpy as np
import torch

from es.networks.custom import with_state
from es.rollouts.player import Player
from es.rollouts.rollout import Snapshot, Task


class Episode(NamedTuple):
    """What is needed to play an episode again."""

    seed: int
    actions: list[Any]
    observations: list[np.ndarray]


def record(player: Player, snapshot: Snapshot, task: Task) -> Episode:
    """Play a task as ever, writing down what its policy saw and did."""
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
    """Play recorded actions on the environment itself: what no rollout can do without."""
    if isinstance(env, ale_py.AtariEnv):
        ale, skip, codes = env.ale, range(env._frameskip), env._action_set
        for episode in episodes:
            ale.reset_game()
            for action in episode.actions:
                code = codes[action]
                for _ in skip:
                    ale.act(code)
        return
    replay(env, episodes)


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
    """Choose actions for them with the torch module."""
    for episode in episodes:
        state = None
        for observation in episode.observations:
            outputs, state = with_state(module(torch.from_numpy(observation).float(), state))
            int(outputs.argmax())
