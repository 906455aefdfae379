"""Trained policies for programs of your own: `from policy import load_policy`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # heavy imports are made where a policy is loaded
    from es.environments.observations import View
    from es.rollouts.rollout import Actor


class Policy:
    """Chooses actions for observations of its environment as Gymnasium makes it.

    `reset()` it with each episode. With --frame-skip K of a game that is none of Atari's, it looks
    at one observation in K, and repeats its action in between, as it was trained to.
    env_id, env_kwargs: for `gymnasium.make`. settings: the run's. update, frames: how many of them
    it has been trained for.
    """

    def __init__(
        self,
        actor: Actor,
        view: View,
        environment: dict[str, Any],
        settings: dict[str, Any],
        update: int,
        frames: int,
    ) -> None:
        self.env_id: str = environment["id"]
        self.env_kwargs: dict[str, Any] = environment["kwargs"]
        self.settings, self.update, self.frames = settings, update, frames
        self._actor, self._view, self._repeats = actor, view, environment["frame_skip"]
        self.reset()

    def reset(self) -> None:
        """Forgets the previous episode."""
        self._actor.reset()
        self._view.reset()
        self._left, self._action = 0, None

    def __call__(self, observation: Any) -> Any:
        """The action for an observation. Raises ValueError for one of another shape."""
        if not self._left:
            self._action, self._left = self._actor.act(self._view(observation)), self._repeats
        self._left -= 1
        return self._action


def load_policy(
    path: str | os.PathLike[str], *, env_name: str | None = None, small_net: bool = False
) -> Policy:
    """The policy in a checkpoint, ready to play.

    env_name: needed for the weights of pytorch-es, which do not say what they play (and small_net,
    where they are the MLP's), and for environments of a module of one's own, which a file is not
    trusted to choose; another one than the checkpoint's is played if the policy fits it. Raises
    es.errors.UsageError where file and environment do not fit.
    """
    from es.config import sources
    from es.environments.observations import View
    from es.errors import UsageError
    from es.main import restore
    from es.policy import describe, restored_normalizer
    from es.runs.checkpoint import Checkpoint

    argv = ["--test", f"--restore={os.fspath(path)}"]
    argv += [] if env_name is None else [f"--env-name={env_name}", "--override"]
    argv += ["--small-net"] if small_net else []
    config, restored = restore(argv, sources.parse(argv), {})
    ours = restored if isinstance(restored, Checkpoint) else None
    if ours is None and env_name is None:
        raise UsageError(
            f"{path}: holds weights alone: say what they play, as in "
            'load_policy(path, env_name="CartPole-v1", small_net=True)'
        )
    game, theta = describe(config, restored)
    normalizer = restored_normalizer(config, game, ours)
    actor = game.recipe().make_actor()
    actor.bind(theta, normalizer.statistics() if normalizer else None)
    return Policy(
        actor,
        View(game.environment),
        game.environment,
        dict(ours.settings) if ours else config.saved(),
        *((ours.counters.update, ours.counters.frames) if ours else (0, 0)),
    )
