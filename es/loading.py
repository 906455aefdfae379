"""A trained policy in a program of one's own."""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any

import gymnasium
import numpy as np

from es.algorithm.noise import DoubleArray, FloatArray
from es.checkpoint import Checkpoint, Counters
from es.config import Config
from es.environments.atari import FireOnNewLife
from es.environments.spaces import Preprocessor, split
from es.envs import make_bare_env, register_creator
from es.errors import UsageError
from es.networks.actors import make_decoder
from es.policy import describe, restored_normalizer
from es.runs.setup import Setup
from es.settings import errors_in_keywords, from_keywords, resolve


class Player:
    """A policy in one episode, whose memory is its own."""

    def __init__(
        self, actor: Any, see: Preprocessor, fire: FireOnNewLife | None, setup: Setup
    ) -> None:
        self._actor, self._see, self._fire = actor, see, fire
        self._repeats, actions = setup.environment["frame_skip"], setup.network["actions"]
        # What makes the action of the largest outputs, of a policy that draws its actions.
        self._largest = (
            make_decoder(actions | {"sample": False}, actor.outputs)
            if actions.get("sample")
            else None
        )

    def bind(self, theta: FloatArray, statistics: DoubleArray | None) -> None:
        """Play these parameters, (P,) float32, with the statistics of a `Snapshot`, from now on."""
        self._actor.bind(theta, statistics)
        self.reset()

    def reset(self, seed: int | None = None, index: int = 0) -> None:
        """Start an episode, in which --sample-actions draws by seed + index."""
        self._actor.reset(None if seed is None else seed + index)
        self._see.reset()
        if self._fire:
            self._fire.start_episode()
        self._left, self._action = 0, None

    def act(self, observation: Any, lives: int = 0, *, greedy: bool = False) -> Any:
        """Return the action for the next step.

        lives: how many are left, for --fire-reset. greedy: draw no action.
        """
        if not self._left:
            self._action, self._left = self._actor.act(self._see(observation)), self._repeats
            if greedy and self._largest:
                self._action = self._largest(int(self._actor.outputs.argmax()))
        self._left -= 1
        return self._fire.replace(self._action, lives) if self._fire else self._action


class Policy:
    """Choose actions for the observations of an environment made by `make_env`.

    That is the one of `gymnasium.make(policy.env_id, **policy.env_kwargs)`, in the wrappers of
    --env-wrapper. Call `reset()` before each episode. If the policy was trained with --frame-skip
    K, and not on an Atari game, it looks at one observation in K and repeats its action in between.
    settings: of the run. update, frames: how many updates and frames the policy was trained for.
    """

    def __init__(
        self, make_player: Callable[[], Player], space: gymnasium.Space, setup: Setup,
        settings: dict[str, Any],
    ) -> None:  # fmt: skip
        self.env_id: str = setup.environment["id"]
        self.env_kwargs: dict[str, Any] = setup.environment["kwargs"]
        self.settings = settings
        self.update, self.frames = 0, 0
        self._seed: int | None = None  # of the episodes that begin
        self._environment, self._space = setup.environment, space
        self._make_player, self._players = make_player, [make_player()]
        repeats, opens = setup.environment["frame_skip"] > 1, setup.environment.get("fire_reset")
        self._remembers = setup.network["kind"] != "mlp" or repeats or bool(opens)

    def bind(
        self, theta: FloatArray, statistics: DoubleArray | None, counters: Counters | None
    ) -> None:
        """Play these parameters, (P,) float32, with the statistics of a `Snapshot`, from now on."""
        self._bound = theta, statistics
        if counters:
            self.update, self.frames = counters.update, counters.frames
        for player in self._players:
            player.bind(theta, statistics)

    def make_env(self, render_mode: str | None = None) -> gymnasium.Env:
        """Return the environment that the policy plays; raise UsageError if it cannot be made."""
        return make_bare_env(self._environment, render_mode, endless=False)

    def reset(self, seed: int | None = None, *, which: Sequence[bool] | None = None) -> None:
        """Forget the previous episodes. which: those of a batch that end; default: all.

        seed: of what --sample-actions draws in the next ones; of a batch, seed, seed + 1, ...
        """
        if which is None:
            self._seed = seed
        chosen = [True] * len(self._players) if which is None else which
        for index, (player, ends) in enumerate(zip(self._players, chosen, strict=False)):
            if ends:
                player.reset(seed, index)

    def __call__(self, observation: Any, info: Mapping[str, Any] | None = None) -> Any:
        """Return the action for an observation, or the actions for a batch: (N, ...).

        A batch holds N observations, as a vector environment has them. Each belongs to an episode
        of its own, whose memory the policy keeps by its place. info: the observation's, which tells
        a policy trained with --fire-reset of lost lives. Raise ValueError for an observation of
        another shape.
        """
        lives = (info or {}).get("lives", 0)
        batch = split(self._space, observation)
        if batch is None:
            return self._players[0].act(observation, lives)
        all_lives = np.broadcast_to(lives, len(batch))
        players = self._first_players(len(batch))
        return np.array([*map(Player.act, players, batch, all_lives)])

    def predict(
        self,
        observation: Any,
        state: list[Player] | None = None,
        episode_start: Any = None,
        deterministic: bool = False,
    ) -> tuple[Any, list[Player] | None]:
        """Return the actions and the state for the next call, as Stable-Baselines3's models do.

        observation: as for a call. state: what the previous call returned; None begins an episode.
        It is None for policies without memory. episode_start: (N,), which episodes begin.
        deterministic: draw no actions. Raise ValueError if these do not fit.
        """
        batch = split(self._space, observation)
        count = 1 if batch is None else len(batch)
        players = state
        if players is None and self._remembers:
            players = [self._new_player(index) for index in range(count)]
        elif players is None:
            players = self._first_players(count)
        starts = np.broadcast_to(False if episode_start is None else episode_start, len(players))
        actions = []
        for player, seen, begins in zip(players, batch or [observation], starts, strict=True):
            if begins:
                player.reset()
            actions.append(player.act(seen, greedy=deterministic))
        found = np.array(actions)
        return (found[0] if batch is None else found), (players if self._remembers else None)

    def _new_player(self, index: int) -> Player:
        player = self._make_player()
        player.bind(*self._bound)
        player.reset(self._seed, index)
        return player

    def _first_players(self, count: int) -> list[Player]:
        self._players += [*map(self._new_player, range(len(self._players), count))]
        return self._players[:count]


def load_policy(
    path: str | os.PathLike[str], *, env_name: str | Callable[..., Any] | None = None,
    env_wrapper: Sequence[Any] = (), small_net: bool = False,
    net: str | Callable[..., Any] | None = None, greedy: bool = False, trust: bool = False,
) -> Policy:  # fmt: skip
    """Return the policy in a checkpoint, ready to play.

    env_name: needed for the weights of pytorch-es, which do not name their environment (with
    small_net, if they are an MLP's). It may differ from the checkpoint's if the policy fits it.
    env_wrapper, net: the words after --env-wrapper, and --net. All three may be the class or
    function itself. trust: import the modules of an environment, a wrapper or a network that the
    checkpoint names. Without it, such a name must be given. greedy: do not draw the actions of a
    policy that was trained with --sample-actions. Raise es.errors.UsageError if file and
    environment do not fit.
    """
    given: dict[str, Any] = {
        "test": True, "restore": os.fspath(path), "greedy": greedy, "trust": trust
    }  # fmt: skip
    with errors_in_keywords():
        name = register_creator(env_name) if callable(env_name) else env_name
        chosen = {"env_name": name, "env_wrapper": env_wrapper, "small_net": small_net, "net": net}
        found = from_keywords({key: value for key, value in chosen.items() if value})
        given |= found | ({"override": True} if name else {})
        config, checkpoint = resolve(given, {})
        assert checkpoint is not None
        if name is None and not checkpoint.config:
            raise UsageError(
                f"{path}: holds weights alone: say what they play, as in "
                'load_policy(path, env_name="CartPole-v1", small_net=True)'
            )
        return make_policy(config, checkpoint)


def make_policy(config: Config, restored: Checkpoint) -> Policy:
    """Return the policy that was restored, with the settings that are chosen for it."""
    setup, theta = describe(config, restored)
    normalizer = restored_normalizer(config, setup.normalized_inputs, restored)
    with closing(make_bare_env(setup.environment)) as bare:
        space = bare.observation_space

    def make_player() -> Player:
        fire = FireOnNewLife(bare) if setup.environment.get("fire_reset") else None
        see = Preprocessor(
            bare, config.env_name, keeps_shape=setup.environment.get("shaped", False)
        )
        return Player(setup.recipe.make_actor(), see, fire, setup)

    settings = (restored.config or config).saved()
    policy = Policy(make_player, space, setup, settings)
    policy.bind(theta, normalizer.statistics() if normalizer else None, restored.counters)
    return policy
