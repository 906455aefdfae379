"""A trained policy in a program of one's own."""

import os
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from es.config import Config
from es.environments.atari import Opening
from es.environments.observations import View
from es.envs import make_bare_env
from es.errors import UsageError
from es.noise import DoubleArray, FloatArray
from es.policy import describe
from es.rollouts.rollout import Actor
from es.runs.checkpoint import Checkpoint, Counters
from es.runs.restored import Restored, restore, restored_normalizer


class Policy:
    """Choose actions for the observations of an environment made by `gymnasium.make`.

    Call `reset()` before each episode. If the policy was trained with --frame-skip K, and not on an
    Atari game, it looks at one observation in K and repeats its action in between.
    env_id, env_kwargs: for `gymnasium.make`. settings: of the run. update, frames: how many updates
    and frames the policy was trained for.
    """

    def __init__(
        self, actor: Actor, view: View, opening: Opening | None, environment: dict[str, Any],
        settings: dict[str, Any], counters: Counters | None,
    ) -> None:  # fmt: skip
        self.env_id: str = environment["id"]
        self.env_kwargs: dict[str, Any] = environment["kwargs"]
        self.settings = settings
        self.update, self.frames = (counters.update, counters.frames) if counters else (0, 0)
        self._actor, self._view, self._opening = actor, view, opening
        self._repeats = environment["frame_skip"]
        self.reset()

    def bind(self, theta: FloatArray, statistics: DoubleArray | None, counters: Counters) -> None:
        """Play these parameters, (P,) float32, with the statistics of a `Snapshot`, from now on."""
        self._actor.bind(theta, statistics)
        self.update, self.frames = counters.update, counters.frames
        self.reset()

    def reset(self, seed: int | None = None) -> None:
        """Forget the previous episode. seed: of what --sample-actions draws in the next one."""
        self._actor.reset(seed)
        self._view.reset()
        if self._opening:
            self._opening.reset()
        self._left, self._action = 0, None

    def __call__(self, observation: Any, info: Mapping[str, Any] | None = None) -> Any:
        """Return the action for an observation; raise ValueError for one of another shape.

        info: the observation's, which tells a policy trained with --fire-reset of lost lives.
        """
        if not self._left:
            self._action, self._left = self._actor.act(self._view(observation)), self._repeats
        self._left -= 1
        if self._opening:
            return self._opening(self._action, (info or {}).get("lives", 0))
        return self._action


def load_policy(
    path: str | os.PathLike[str], *, env_name: str | None = None, small_net: bool = False,
    greedy: bool = False,
) -> Policy:  # fmt: skip
    """Return the policy in a checkpoint, ready to play.

    env_name: needed for the weights of pytorch-es, which do not name their environment (with
    small_net, if they are an MLP's), and for environments of a user's own module, because a file is
    not trusted to choose one. It may differ from the checkpoint's if the policy fits it. greedy: do
    not draw the actions of a policy that was trained with --sample-actions. Raise
    es.errors.UsageError if file and environment do not fit.
    """
    given: dict[str, Any] = {"test": True, "restore": os.fspath(path), "greedy": greedy}
    given |= {} if env_name is None else {"env_name": env_name, "override": True}
    given |= {"small_net": True} if small_net else {}
    # Not by a command line: tyro keeps the memory of each that it reads.
    config, restored = restore(lambda own: Config(**own | given), Config(**given))
    if env_name is None and not isinstance(restored, Checkpoint):
        raise UsageError(
            f"{path}: holds weights alone: say what they play, as in "
            'load_policy(path, env_name="CartPole-v1", small_net=True)'
        )
    return make_policy(config, restored)


def make_policy(config: Config, restored: Restored) -> Policy:
    """Return the policy that was restored, with the settings that are chosen for it."""
    ours = restored if isinstance(restored, Checkpoint) else None
    setup, theta = describe(config, restored)
    normalizer = restored_normalizer(config, setup.normalized_inputs, ours)
    actor = setup.recipe.make_actor()
    actor.bind(theta, normalizer.statistics() if normalizer else None)
    with closing(make_bare_env(setup.environment)) as bare:
        view = View(bare)
        opening = Opening(bare) if setup.environment.get("fire_reset") else None
    settings = dict(ours.settings) if ours else config.saved()
    return Policy(actor, view, opening, setup.environment, settings, ours and ours.counters)
