"""Environment, network and parameters, made alike for training, testing and load_policy."""

import os
from contextlib import closing
from functools import partial
from typing import Any

from es.config import FIELDS, Config, flag, flag_with_value, sources
from es.environments.first_step import check_first_step
from es.environments.observations import View
from es.environments.spaces import describe_actions
from es.environments.vbn_batch import gather_frames
from es.envs import describe_env, make_bare_env, make_env, max_steps
from es.errors import UsageError
from es.model import flatten, initial_theta, layer_shapes
from es.networks import make_actor
from es.noise import FloatArray, Stream, derive_seeds
from es.rollouts.rollout import Actor, Recipe
from es.runs.checkpoint import Checkpoint, Counters
from es.runs.restored import (
    SETTINGS_OF_ENVIRONMENT,
    Restored,
    restore,
    restored_normalizer,
    settings_of,
)
from es.runs.setup import Setup

MAX_PARAMETERS = 100_000_000


def describe(config: Config, restored: Restored) -> tuple[Setup, FloatArray]:
    """Return the setup, and the restored or else the initial parameters: (P,) float32.

    Raise UsageError if environment, network and checkpoint do not fit together.
    """
    ours = restored if isinstance(restored, Checkpoint) else None
    environment = _describe_environment(config, ours)
    env = make_env(environment)
    check_first_step(env, config.env_name)
    shape = env.observation_space.shape or ()
    actions = _describe_actions(config, describe_actions(env.action_space, config.env_name))
    env.close()
    network = describe_network(config, shape, actions)
    size = sum(shape.numel() for shape in layer_shapes(network).values())
    if size > MAX_PARAMETERS:
        raise UsageError(
            f"the network would have {size} parameters, and {MAX_PARAMETERS} are possible: choose "
            "smaller --hidden-sizes or --action-bins"
        )
    theta = _parameters(config, network, restored)
    vbn_batch = _vbn_batch(config, environment, ours) if network.get("vbn") else None
    recipe = Recipe(
        partial(make_env, environment),
        partial(make_actor, network, vbn_batch),
        max_steps(environment),
        config.param_fraction,
    )
    return Setup(environment, network, recipe, vbn_batch), theta


def describe_network(
    config: Config, shape: tuple[int, ...], actions: dict[str, Any]
) -> dict[str, Any]:
    """Return the network for observations of `shape`: an MLP for vectors, else the Convnet-LSTM.

    Raise UsageError for settings of the other network.
    """
    if len(shape) == 1:
        if config.vbn:
            raise UsageError(
                f"--vbn: is for the Convnet-LSTM, and {config.env_name} is played by the MLP; "
                "--obs-norm normalises what that sees"
            )
        return {
            "kind": "mlp",
            "inputs": shape[0],
            "hidden": list(config.hidden_sizes),
            "activation": config.activation,
            "normalize": config.obs_norm,
            "actions": actions,
        }
    if config.small_net:
        raise UsageError(
            "--small-net: the MLP cannot see images; leave the flag out to use the Convnet-LSTM"
        )
    for name in ("obs_norm", "hidden_sizes", "activation"):
        value = getattr(config, name)
        if value != FIELDS[name].default:
            raise UsageError(
                f"{flag_with_value(name, value)}: is for the MLP, and the images of "
                f"{config.env_name} are seen by the Convnet-LSTM; leave it out"
            )
    return {"kind": "convlstm", "inputs": shape[0], "vbn": config.vbn, "actions": actions}


def _describe_environment(config: Config, ours: Checkpoint | None) -> dict[str, Any]:
    described = describe_env(
        config.env_name,
        config.env_kwargs,
        frame_skip=config.frame_skip,
        noop_max=config.noop_max,
        sticky_actions=config.sticky_actions,
    )
    if ours and ours.environment != described:
        if sources.differences(config, settings_of(ours), SETTINGS_OF_ENVIRONMENT):
            return described
        raise UsageError(
            f"--restore {config.restore}: is damaged (its environment is not its settings')"
        )
    return described


def _describe_actions(config: Config, actions: dict[str, Any]) -> dict[str, Any]:
    if actions["kind"] == "box":
        return actions | {"bins": config.action_bins, "noise": config.action_noise}
    for name in ("action_bins", "action_noise"):
        if value := getattr(config, name):
            raise UsageError(
                f"{flag(name)} {value}: is for continuous actions, and those of {config.env_name} "
                f"are {actions['kind']}"
            )
    return actions


def _parameters(config: Config, network: dict[str, Any], restored: Restored) -> FloatArray:
    if restored is None:
        (seed,) = derive_seeds(config.seed or 0, 0, Stream.PARAMETERS, 1)
        return initial_theta(network, seed)
    own = restored.parameters if isinstance(restored, Checkpoint) else restored
    try:
        return flatten(network, own)
    except (ValueError, AttributeError, RuntimeError) as error:
        raise UsageError(
            f"--restore {config.restore}: does not fit --env-name {config.env_name}: {error}"
        ) from error


def _vbn_batch(config: Config, environment: dict[str, Any], ours: Checkpoint | None) -> FloatArray:
    """Return the batch of virtual batch normalisation: the checkpoint's, or else a new one."""
    if ours is None or not ours.settings.get("vbn"):
        (seed,) = derive_seeds(config.seed or 0, 0, Stream.VBN_BATCH, 1)
        with closing(make_env(environment)) as env:
            return gather_frames(env, seed)
    batch = ours.vbn_batch
    if batch is None or not len(batch) or not batch.isfinite().all():
        raise UsageError(f"--restore {config.restore}: is damaged (its vbn_batch)")
    return batch.numpy()


class Policy:
    """Choose actions for the observations of an environment made by `gymnasium.make`.

    Call `reset()` before each episode. If the policy was trained with --frame-skip K, and not on an
    Atari game, it looks at one observation in K and repeats its action in between.
    env_id, env_kwargs: for `gymnasium.make`. settings: of the run. update, frames: how many updates
    and frames the policy was trained for.
    """

    def __init__(
        self, actor: Actor, view: View, environment: dict[str, Any], settings: dict[str, Any],
        counters: Counters | None,
    ) -> None:  # fmt: skip
        self.env_id: str = environment["id"]
        self.env_kwargs: dict[str, Any] = environment["kwargs"]
        self.settings = settings
        self.update, self.frames = (counters.update, counters.frames) if counters else (0, 0)
        self._actor, self._view, self._repeats = actor, view, environment["frame_skip"]
        self.reset()

    def reset(self) -> None:
        """Forget the previous episode."""
        self._actor.reset()
        self._view.reset()
        self._left, self._action = 0, None

    def __call__(self, observation: Any) -> Any:
        """Return the action for an observation; raise ValueError for one of another shape."""
        if not self._left:
            self._action, self._left = self._actor.act(self._view(observation)), self._repeats
        self._left -= 1
        return self._action


def load_policy(
    path: str | os.PathLike[str], *, env_name: str | None = None, small_net: bool = False
) -> Policy:
    """Return the policy in a checkpoint, ready to play.

    env_name: needed for the weights of pytorch-es, which do not name their environment (with
    small_net, if they are an MLP's), and for environments of a user's own module, because a file is
    not trusted to choose one. It may differ from the checkpoint's if the policy fits it. Raise
    es.errors.UsageError if file and environment do not fit.
    """
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
    setup, theta = describe(config, restored)
    normalizer = restored_normalizer(config, setup.normalized_inputs, ours)
    actor = setup.recipe.make_actor()
    actor.bind(theta, normalizer.statistics() if normalizer else None)
    with closing(make_bare_env(setup.environment)) as bare:
        view = View(bare)
    settings = dict(ours.settings) if ours else config.saved()
    return Policy(actor, view, setup.environment, settings, ours.counters if ours else None)
