"""What plays: an environment, a network, its parameters and the statistics of observations.

`make_policy` makes it for training, --test, --export and sweeps, and `load_policy` for a program.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn

from es.algorithm.noise import DoubleArray, FloatArray, Stream, derive_seeds
from es.algorithm.shaping import mean_and_std
from es.algorithm.statistics import Normalizer
from es.checkpoint import Checkpoint, Counters
from es.config import FIELDS, OF_OUR_NETWORKS, Config, flag_with_value
from es.environments.spaces import describe_actions, unbatch
from es.envs import (
    Preprocessor,
    check_first_step,
    describe_env,
    make_bare_env,
    make_env,
    max_steps,
    register_creator,
)
from es.errors import UsageError, as_usage_error
from es.model import ConvLSTM, flatten, initial_theta, make_module, unflatten, with_shapes
from es.networks import make_actor
from es.rollouts.episode import close
from es.rollouts.player import InProcessPool
from es.rollouts.processes import search_last
from es.rollouts.tasks import Recipe, Snapshot, evaluation_tasks
from es.settings import SETTINGS_OF_ENVIRONMENT, errors_in_keywords, from_keywords, resolve

if TYPE_CHECKING:  # it loads kernels, and a master with workers needs none
    from es.networks.custom import Custom


@dataclass(frozen=True)
class Policy:
    """An environment, and a network with the parameters that play it.

    environment, network: plain descriptions (`es.envs`, `es.networks`); with the recipe, every
    process makes the same.
    theta: (P,) float32. normalizer: the statistics of observations, if they are normalised.
    vbn_batch: (128, 1, 42, 42) float32, with --vbn. custom: for a --net module. update: after how
    many updates. drawable: whether the environment has the render mode rgb_array. repeatable:
    whether the same episode began alike each time.

    The trainer changes theta and the normalizer in place.
    """

    config: Config
    environment: dict[str, Any]
    network: dict[str, Any]
    recipe: Recipe
    theta: FloatArray
    normalizer: Normalizer | None
    vbn_batch: FloatArray | None
    custom: "Custom | None"
    update: int
    drawable: bool
    repeatable: bool

    @property
    def statistics(self) -> DoubleArray | None:
        """Return means and 1 / standard deviation, (2, inputs), if observations are normalised."""
        return self.normalizer.statistics() if self.normalizer else None

    def actor(self) -> Any:
        """Return an actor that plays the parameters."""
        actor = self.recipe.make_actor()
        actor.bind(self.theta, self.statistics)
        return actor

    def module(self) -> nn.Module:
        """Return a torch module with the parameters.

        It is called as `module(observation, state)`, and returns outputs and the next state; see
        `es.networks.custom.with_state` for those of --net. Observations are normalised before it.
        """
        if self.custom:
            from es.networks.custom import make_custom_module

            module: nn.Module = make_custom_module(self.network, self.custom)
        else:
            module = make_module(self.network)
        module.requires_grad_(False)
        module.load_state_dict(unflatten(self.network, self.theta), strict=False)
        if self.vbn_batch is not None:
            cast(ConvLSTM, module).refer_to(torch.from_numpy(self.vbn_batch))
        return module

    def evaluate(self) -> tuple[float, float]:
        """Return mean and standard deviation of the returns of --eval-episodes, played here.

        They are the episodes of the run's own evaluation, and of --test.
        """
        config = self.config
        snapshot = Snapshot(self.theta, config.sigma, self.statistics)
        tasks = evaluation_tasks(
            config.seed or 0, self.update, config.eval_episodes, config.max_episode_length
        )
        with closing(InProcessPool(self.recipe)) as pool:
            results = pool.evaluate(snapshot, tasks)
        return mean_and_std(results["episode_return"])


def make_policy(config: Config, checkpoint: Checkpoint | None) -> Policy:
    """Return the policy of a checkpoint, or a new one.

    Raise UsageError if environment, network and checkpoint do not fit together.
    """
    if config.user_modules:  # a script may lie in another folder than its command was typed in
        search_last()
    settings: Any = {name: getattr(config, name) for name in SETTINGS_OF_ENVIRONMENT}
    environment = describe_env(**settings, keeps_shape=config.net is not None)
    env = make_env(environment)
    try:
        actions = _describe_actions(config, describe_actions(env.action_space, config.env_name))
        repeatable = check_first_step(env, config.env_name)
        drawable = "rgb_array" in (env.metadata.get("render_modes") or ())
    finally:
        close(env)
    saved = checkpoint.parameters if checkpoint else None
    custom = None
    (seed,) = derive_seeds(config.seed or 0, 0, Stream.PARAMETERS, 1)
    if config.net:
        from es.networks.custom import describe_custom

        of_ours = f"the program's networks; --net-kwargs gives --net {config.net} its arguments"
        _refuse(config, OF_OUR_NETWORKS, of_ours)
        network, custom, theta = describe_custom(
            config, env.observation_space, env.action_space, actions, saved, seed
        )
    else:
        network = with_shapes(describe_network(config, env.observation_space.shape or (), actions))
        theta = initial_theta(network, seed)
        if config.init == "zero":
            theta[:] = 0
    normalizer = None
    if network.get("normalize"):
        normalizer = Normalizer(network["inputs"], config.obs_std_floor)
    if saved is not None:
        others = {*network["shared"], *custom.untrained} if custom else set[str]()
        try:
            theta = flatten(network, {name: saved[name] for name in saved if name not in others})
            if normalizer and checkpoint and checkpoint.config:
                normalizer.load(checkpoint.normalizer or {})
        except ValueError as error:
            given = f"--net {config.net}" if config.net else f"--env-name {config.env_name}"
            raise UsageError(
                f"--restore {config.restore}: does not fit {given}: {error}"
            ) from error
    vbn_batch = None
    if network.get("vbn"):
        if checkpoint and checkpoint.config:
            vbn_batch = cast(Tensor, checkpoint.vbn_batch).numpy()
        else:
            vbn_batch = _new_vbn_batch(config, environment)
    recipe = Recipe(
        partial(make_env, environment),
        partial(make_actor, network, vbn_batch, custom),
        max_steps(environment),
        config.param_fraction,
        config.reward_clip or None,
    )
    return Policy(
        config=config,
        environment=environment,
        network=network,
        recipe=recipe,
        theta=theta,
        normalizer=normalizer,
        vbn_batch=vbn_batch,
        custom=custom,
        update=checkpoint.counters.update if checkpoint else 0,
        drawable=drawable,
        repeatable=repeatable,
    )


def describe_network(
    config: Config, shape: tuple[int, ...], actions: dict[str, Any]
) -> dict[str, Any]:
    """Return the network for observations of `shape`: an MLP for vectors, else the Convnet-LSTM.

    Raise UsageError for settings of the other network.
    """
    if len(shape) == 1:
        _refuse(config, ["vbn"], f"the Convnet-LSTM, and {config.env_name} is played by the MLP")
        return {
            "kind": "mlp",
            "inputs": shape[0],
            "hidden": list(config.hidden_sizes),
            "activation": config.activation,
            "normalize": config.obs_norm,
            "obs_clip": config.obs_clip,
            "actions": actions,
        }
    of_mlp = ["small_net", "obs_norm", "hidden_sizes", "activation"]
    _refuse(config, of_mlp, f"the MLP, and the Convnet-LSTM plays the images of {config.env_name}")
    return {"kind": "convlstm", "inputs": shape[0], "vbn": config.vbn, "actions": actions}


def _describe_actions(config: Config, actions: dict[str, Any]) -> dict[str, Any]:
    kind = actions["kind"]
    if not config.sample_actions:
        _refuse(config, ["greedy"], "policies that draw actions (--sample-actions)")
    if kind in ("discrete", "multi-discrete"):
        actions = actions | {"sample": config.sample_actions and not config.greedy}
    if kind == "box":
        squash = {"squash": config.squash, "noise": config.action_noise}
        return actions | {"bins": config.action_bins} | squash
    of_box = ["action_bins", "action_noise", "squash"]
    _refuse(config, of_box, f"continuous actions, and those of {config.env_name} are {kind}")
    return actions


def _refuse(config: Config, names: Sequence[str], others: str) -> None:
    """Raise UsageError if one of the settings, which apply only to `others`, is given."""
    for name in names:
        value = getattr(config, name)
        if value != FIELDS[name].default:
            given = flag_with_value(name, value)
            raise UsageError(f"{given} applies only to {others}. Remove it")


def _new_vbn_batch(config: Config, environment: dict[str, Any]) -> FloatArray:
    from es.environments.images import gather_frames  # this loads kernels

    (seed,) = derive_seeds(config.seed or 0, 0, Stream.VBN_BATCH, 1)
    blame = as_usage_error(f"--env-name {config.env_name}: cannot be played")
    with blame, closing(make_env(environment)) as env:
        return gather_frames(env, seed)


class EpisodeActor:
    """A policy in one episode, with a memory of its own."""

    def __init__(self, policy: Policy, bare: gymnasium.Env) -> None:
        from es.environments.atari import FireOnNewLife  # this loads kernels
        from es.networks.actors import Decoder

        environment, actions = policy.environment, policy.network["actions"]
        self._actor = actor = cast(Any, policy.recipe.make_actor())
        self._preprocess = Preprocessor(bare, environment)
        self._fire = FireOnNewLife(bare) if environment["fire_reset"] else None
        self._repeats = environment["frame_skip"]
        # For --sample-actions, where the actor draws.
        self._likeliest = Decoder(actions | {"sample": False}, actor.outputs).decode

    def bind(self, theta: FloatArray, statistics: DoubleArray | None) -> None:
        """Play these parameters, (P,) float32, with the statistics of a `Snapshot`, from now on."""
        self._actor.bind(theta, statistics)
        self.reset()

    def reset(self, seed: int | None = None) -> None:
        """Start an episode, in which --sample-actions draws by a seed."""
        self._actor.reset(seed)
        self._preprocess.reset()
        if self._fire:
            self._fire.start_episode()
        self._steps_left, self._action = 0, None

    def act(self, observation: Any, lives: int = 0, *, greedy: bool = False) -> Any:
        """Return the action for the next step.

        lives: how many are left, for --fire-reset. greedy: draw no action.
        """
        if not self._steps_left:
            self._action = self._actor.act(self._preprocess(observation))
            self._steps_left = self._repeats
            if greedy:
                self._action = self._likeliest(int(self._actor.outputs.argmax()))
        self._steps_left -= 1
        return self._fire.replace(self._action, lives) if self._fire else self._action


class LoadedPolicy:
    """Choose actions for the observations of an environment made by `make_env`.

    That is the one of `gymnasium.make(policy.env_id, **policy.env_kwargs)`, in the wrappers of
    --env-wrapper. Call `reset()` before each episode. If the policy was trained with --frame-skip
    K, and not on an Atari game, it looks at one observation in K and repeats its action in between.
    settings: of the run. update, frames: how many updates and frames the policy was trained for.
    """

    def __init__(self, policy: Policy, checkpoint: Checkpoint) -> None:
        environment = policy.environment
        self.env_id: str = environment["id"]
        self.env_kwargs: dict[str, Any] = environment["kwargs"]
        self.settings = (checkpoint.config or policy.config).saved()
        self._policy = policy
        self._seed: int | None = None  # of the episodes that begin
        with closing(make_bare_env(environment)) as bare:
            self._space = bare.observation_space
            self._make_actor = partial(EpisodeActor, policy, bare)
        self._actors: list[EpisodeActor] = []  # of the episodes in a batch, by their places
        repeats, opens = environment["frame_skip"] > 1, environment["fire_reset"]
        self._remembers = policy.network["kind"] != "mlp" or repeats or bool(opens)
        self.bind(policy.theta, policy.statistics, checkpoint.counters)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the actors, whose arrays share memory: a copy makes its own."""
        return self.__dict__ | {"_actors": []}

    def bind(self, theta: FloatArray, statistics: DoubleArray | None, counters: Counters) -> None:
        """Play these parameters, (P,) float32, with the statistics of a `Snapshot`, from now on."""
        self._bound = theta, statistics
        self.update, self.frames = counters.update, counters.frames
        for actor in self._actors:
            actor.bind(theta, statistics)

    def make_env(self, render_mode: str | None = None) -> gymnasium.Env:
        """Return the environment that the policy plays; raise UsageError if it cannot be made."""
        return make_bare_env(self._policy.environment, render_mode, endless=False)

    def reset(
        self, seed: int | None = None, *, which: Iterable[bool | np.bool_] | None = None
    ) -> None:
        """Forget the previous episodes. which: those of a batch that end; default: all.

        seed: the next episode of --sample-actions draws from it; a batch's, from seed, seed + 1 ...
        """
        if which is None:
            self._seed = seed
        chosen = [True] * len(self._actors) if which is None else which
        for index, (actor, ends) in enumerate(zip(self._actors, chosen, strict=False)):
            if ends:
                actor.reset(None if seed is None else seed + index)

    def __call__(self, observation: Any, info: Mapping[str, Any] | None = None) -> Any:
        """Return the action for an observation, or the actions for a batch: (N, ...).

        A batch holds N observations, as a vector environment has them. Each place in it is an
        episode of its own, with its own memory. info: the observation's; a policy trained with
        --fire-reset finds lost lives in it. Raise ValueError for an observation of another shape.
        """
        batch = unbatch(self._space, observation)
        parts = [observation] if batch is None else batch
        lives = np.broadcast_to((info or {}).get("lives", 0), len(parts))
        actions = [*map(EpisodeActor.act, self._first_actors(len(parts)), parts, lives)]
        return actions[0] if batch is None else np.array(actions)

    def predict(
        self,
        observation: Any,
        state: list[EpisodeActor] | None = None,
        episode_start: Any = None,
        deterministic: bool = False,
    ) -> tuple[Any, list[EpisodeActor] | None]:
        """Return the actions and the state for the next call, as Stable-Baselines3's models do.

        observation: as for a call. state: what the previous call returned; None begins an episode.
        It is None for policies without memory. episode_start: (N,), which episodes begin.
        deterministic: draw no actions. Raise ValueError if these do not fit.
        """
        batch = unbatch(self._space, observation)
        parts = [observation] if batch is None else batch
        if state is not None:
            actors = state
        elif self._remembers:
            actors = [self._new_actor(index) for index in range(len(parts))]
        else:
            actors = self._first_actors(len(parts))
        starts = np.broadcast_to(False if episode_start is None else episode_start, len(actors))
        actions = []
        for actor, part, begins in zip(actors, parts, starts, strict=True):
            if begins and state is not None:  # else there is nothing to forget but the seed
                actor.reset()
            actions.append(actor.act(part, greedy=deterministic))
        return np.array(actions[0] if batch is None else actions), (
            actors if self._remembers else None
        )

    def _new_actor(self, index: int) -> EpisodeActor:
        actor = self._make_actor()
        actor.bind(*self._bound)
        actor.reset(None if self._seed is None else self._seed + index)
        return actor

    def _first_actors(self, count: int) -> list[EpisodeActor]:
        self._actors += [*map(self._new_actor, range(len(self._actors), count))]
        return self._actors[:count]


def load_policy(
    path: str | os.PathLike[str], *, env_name: str | Callable[..., Any] | None = None,
    env_wrapper: Sequence[Any] = (),
    net: str | Callable[..., Any] | None = None, greedy: bool = False, trust: bool = False,
) -> LoadedPolicy:  # fmt: skip
    """Return the policy in a checkpoint, ready to play.

    env_name: needed for the weights of pytorch-es, which do not name their environment. It
    may differ from the checkpoint's if the policy fits it.
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
        chosen = {"env_name": name, "env_wrapper": env_wrapper, "net": net}
        keywords = from_keywords({key: value for key, value in chosen.items() if value})
        given |= keywords | ({"override": True} if name else {})
        config, checkpoint = resolve(given, {})
        assert checkpoint is not None
        if name is None and not checkpoint.config:
            raise UsageError(
                f"{path}: holds weights alone. Name their environment: "
                'load_policy(path, env_name="CartPole-v1")'
            )
        return LoadedPolicy(make_policy(config, checkpoint), checkpoint)
