"""What is played: environment and network as plain descriptions, the same for train and test."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

from torch import Tensor

from es.algorithm.normalizer import Normalizer
from es.config import Config
from es.config.sources import differences, from_mapping
from es.environments.first_step import probe
from es.environments.spaces import describe_actions
from es.environments.vbn_batch import gather_frames
from es.envs import describe_env, make_env, max_steps
from es.errors import UsageError
from es.model import flatten, initial_theta, layer_shapes, make_actor
from es.noise import FloatArray, Stream, derive_seeds
from es.rollouts.rollout import Recipe
from es.runs.checkpoint import Checkpoint

MAX_PARAMETERS = 100_000_000
Restored = Checkpoint | dict[str, Tensor] | None
SETTINGS_OF_ENVIRONMENT = (
    "env_name", "env_kwargs", "frame_skip", "noop_max", "sticky_actions"
)  # fmt: skip
# The settings that decide how good a score is.
SCORED = (*SETTINGS_OF_ENVIRONMENT, "max_episode_length", "episodes_per_perturbation")


class Game(NamedTuple):
    """Plain descriptions, from which every process builds the same environment and network.

    reference: (128, 1, 42, 42) float32, the batch of virtual batch normalisation, where it is used.
    """

    environment: dict[str, Any]
    network: dict[str, Any]
    reference: FloatArray | None = None

    def recipe(self, param_fraction: float = 1.0) -> Recipe:
        """How a worker builds both."""
        return Recipe(
            partial(make_env, self.environment),
            partial(make_actor, self.network, self.reference),
            max_steps(self.environment),
            param_fraction,
        )

    @property
    def normalized_inputs(self) -> int:
        """How many numbers an observation has, where these are normalised."""
        return self.network["inputs"] if self.network.get("normalize") else 0


def scored_alike(config: Config, ours: Checkpoint) -> bool:
    """Whether the scores of the checkpoint's run can be compared with those to come."""
    return not differences(config, from_mapping(ours.settings, "checkpoint"), SCORED)


def settings_of(ours: Checkpoint) -> Config:
    """Those of the checkpoint's run."""
    return Config(**from_mapping(ours.settings, "checkpoint"))


def describe(config: Config, restored: Restored) -> tuple[Game, FloatArray]:
    """What to play, and the restored or else the initial parameters: (P,) float32.

    Raises UsageError where environment, network and checkpoint do not fit together.
    """
    ours = restored if isinstance(restored, Checkpoint) else None
    environment = _describe_environment(config, ours)
    env = make_env(environment)
    probe(env, config.env_name)
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
    reference = _reference(config, environment, ours) if network.get("vbn") else None
    return Game(environment, network, reference), theta


def describe_network(
    config: Config, shape: tuple[int, ...], actions: dict[str, Any]
) -> dict[str, Any]:
    """The network for observations of `shape`: an MLP for vectors, the Convnet-LSTM for images.

    Raises UsageError for settings of the other one.
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
    defaults = Config()
    for given, differs in (
        ("--obs-norm", config.obs_norm),
        (f"--hidden-sizes {' '.join(map(str, config.hidden_sizes))}",
         config.hidden_sizes != defaults.hidden_sizes),
        (f"--activation {config.activation}", config.activation != defaults.activation),
    ):  # fmt: skip
        if differs:
            raise UsageError(
                f"{given}: is for the MLP, and the images of {config.env_name} are seen by the "
                "Convnet-LSTM; leave it out"
            )
    return {"kind": "convlstm", "inputs": shape[0], "vbn": config.vbn, "actions": actions}


def restored_normalizer(config: Config, game: Game, ours: Checkpoint | None) -> Normalizer | None:
    """The statistics of observations, where these are normalised: the checkpoint's, if it has any.

    Raises UsageError where they do not fit.
    """
    if not game.normalized_inputs:
        return None
    normalizer = Normalizer(game.normalized_inputs)
    if ours and ours.settings.get("obs_norm"):
        try:
            normalizer.load(ours.normalizer or {})
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise UsageError(f"--restore {config.restore}: is damaged ({error!r})") from error
    return normalizer


def _describe_environment(config: Config, ours: Checkpoint | None) -> dict[str, Any]:
    described = describe_env(
        config.env_name,
        config.env_kwargs,
        frame_skip=config.frame_skip,
        noop_max=config.noop_max,
        sticky_actions=config.sticky_actions,
    )
    if ours and ours.environment != described:
        own = from_mapping(ours.settings, "checkpoint")
        if not differences(config, own, SETTINGS_OF_ENVIRONMENT):
            raise UsageError(
                f"--restore {config.restore}: is damaged (its environment is not its settings')"
            )
    return described


def _describe_actions(config: Config, actions: dict[str, Any]) -> dict[str, Any]:
    if actions["kind"] == "box":
        return actions | {"bins": config.action_bins, "noise": config.action_noise}
    for flag, value in (
        ("--action-bins", config.action_bins), ("--action-noise", config.action_noise)
    ):  # fmt: skip
        if value:
            raise UsageError(
                f"{flag} {value}: is for continuous actions, and those of {config.env_name} are "
                f"{actions['kind']}"
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


def _reference(config: Config, environment: dict[str, Any], ours: Checkpoint | None) -> FloatArray:
    """The batch of virtual batch normalisation: the checkpoint's, or else a new one."""
    if ours is None or not ours.settings.get("vbn"):
        (seed,) = derive_seeds(config.seed or 0, 0, Stream.REFERENCE, 1)
        return gather_frames(environment, seed)
    if ours.reference is None or not len(ours.reference) or not ours.reference.isfinite().all():
        raise UsageError(f"--restore {config.restore}: is damaged (its reference batch)")
    return ours.reference.numpy()
