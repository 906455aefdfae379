"""What is played: environment and network as plain descriptions, the same for train and test."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

from torch import Tensor

from envs import describe_env, make_env, max_steps, shapes
from es.checkpoint import Checkpoint
from es.config import Config
from es.errors import UsageError
from es.noise import FloatArray, Stream, derive_seeds
from es.rollout import Recipe
from model import describe_network, flatten, initial_theta, make_actor

Restored = Checkpoint | dict[str, Tensor] | None


class Game(NamedTuple):
    """Plain descriptions, from which every process builds the same environment and network."""

    environment: dict[str, Any]
    network: dict[str, Any]

    def recipe(self) -> Recipe:
        """How a worker builds both."""
        return Recipe(
            partial(make_env, self.environment),
            partial(make_actor, self.network),
            max_steps(self.environment),
        )


def describe(config: Config, restored: Restored) -> tuple[Game, FloatArray]:
    """What to play, and the restored or else the initial parameters: (P,) float32.

    Raises UsageError where environment, network and checkpoint do not fit together.
    """
    ours = restored if isinstance(restored, Checkpoint) else None
    environment = describe_env(config.env_name)
    same_env = ours is not None and ours.settings["env_name"] == config.env_name
    if ours and same_env and ":" not in ours.environment["id"]:  # a file must not import modules
        environment = ours.environment
    env = make_env(environment)
    shape, actions = shapes(env, config.env_name)
    env.close()
    network = describe_network(shape, actions, small_net=config.small_net)
    if restored is None:
        (seed,) = derive_seeds(config.seed or 0, 0, Stream.PARAMETERS, 1)
        return Game(environment, network), initial_theta(network, seed)
    try:
        theta = flatten(network, ours.parameters if ours else restored)  # type: ignore[arg-type]
    except (ValueError, AttributeError, RuntimeError) as error:
        raise UsageError(
            f"--restore {config.restore}: does not fit --env-name {config.env_name}: {error}"
        ) from error
    return Game(environment, network), theta
