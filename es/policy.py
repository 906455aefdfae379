"""Environment, network and parameters, made alike for training, testing and load_policy."""

import math
from collections.abc import Callable, Collection
from contextlib import closing
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from torch import nn

from es.algorithm.noise import FloatArray, Stream, derive_seeds
from es.algorithm.shaping import mean_and_std
from es.algorithm.statistics import Normalizer
from es.checkpoint import Checkpoint
from es.config import FIELDS, Config, flag, flag_with_value
from es.environments.spaces import describe_actions
from es.envs import check_first_step, describe_env, is_unlimited, make_env, max_steps
from es.errors import RunError, UsageError, as_usage_error
from es.model import (
    ConvLSTM,
    flatten,
    initial_theta,
    make_module,
    unflatten,
    with_shapes,
)
from es.networks import make_actor
from es.rollouts.in_process import InProcessPool
from es.rollouts.rollout import Recipe, Snapshot, close, evaluation_tasks
from es.runs.setup import Setup
from es.settings import SETTINGS_OF_ENVIRONMENT

MAX_PARAMETERS = 100_000_000


def describe(config: Config, restored: Checkpoint | None) -> tuple[Setup, FloatArray]:
    """Return the setup, and the restored or else the initial parameters: (P,) float32.

    Raise UsageError if environment, network and checkpoint do not fit together.
    """
    environment = _describe_environment(config)
    env = make_env(environment)
    try:
        shape = env.observation_space.shape or ()
        actions = _describe_actions(config, describe_actions(env.action_space, config.env_name))
        repeatable = check_first_step(env, config.env_name)
        drawable = "rgb_array" in (env.metadata.get("render_modes") or ())
    finally:
        complaint = close(env)
    if complaint:
        raise RunError(f"--env-name {config.env_name}: cannot be played ({complaint})")
    custom = initial = None
    make_torch: Callable[[], nn.Module]
    if config.net:
        from es.networks.custom import describe_custom, make_custom_module  # this loads kernels

        saved = restored.parameters if restored else None
        network, custom, initial = describe_custom(
            config, env.observation_space, env.action_space, actions, saved
        )
        make_torch = partial(make_custom_module, network, custom)
    else:
        network = with_shapes(describe_network(config, shape, actions))
        make_torch = partial(make_module, network)
    size = sum(map(math.prod, network["shapes"].values()))
    if size > MAX_PARAMETERS:
        raise UsageError(
            f"the network would have {size} parameters, and {MAX_PARAMETERS} are possible: choose "
            f"smaller {'--net-kwargs' if custom else '--hidden-sizes'} or --action-bins"
        )
    untrained = custom.untrained if custom else {}
    theta = _parameters(config, network, restored, initial, untrained)
    vbn_batch = _vbn_batch(config, environment, restored) if network.get("vbn") else None
    make, act = partial(make_env, environment), partial(make_actor, network, vbn_batch, custom)
    recipe = Recipe(
        make, act, max_steps(environment), config.param_fraction, config.reward_clip or None
    )
    tensors = {name: torch.from_numpy(array) for name, array in untrained.items()}
    setup = Setup(
        environment,
        network,
        recipe,
        make_torch,
        vbn_batch,
        is_unlimited(environment),
        tensors,
        drawable,
        repeatable,
    )
    return setup, theta


def policy_module(setup: Setup, theta: FloatArray) -> nn.Module:
    """Return the torch module that plays theta, (P,) float32.

    It is called as `module(observation, state)` for outputs and the next state; see
    `es.networks.custom.with_state` for those of --net. Observations are normalised before it.
    """
    module = setup.make_module().requires_grad_(False)
    module.load_state_dict(unflatten(setup.network, theta), strict=False)
    if setup.vbn_batch is not None:
        cast(ConvLSTM, module).refer_to(torch.from_numpy(setup.vbn_batch))
    return module


def evaluate(
    config: Config, restored: Checkpoint | None, setup: Setup, theta: FloatArray
) -> tuple[float, float]:
    """Return mean and standard deviation of the returns of --eval-episodes, played here.

    They are the episodes of the run's own evaluation, and of --test.
    """
    normalizer = restored_normalizer(config, setup.normalized_inputs, restored)
    snapshot = Snapshot(theta, config.sigma, normalizer.statistics() if normalizer else None)
    update = restored.counters.update if restored else 0
    tasks = evaluation_tasks(
        config.seed or 0, update, config.eval_episodes, config.max_episode_length
    )
    with closing(InProcessPool(setup.recipe)) as pool:
        results = pool.evaluate(snapshot, tasks)
    return mean_and_std([result.episode_return for result in results])


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
            "obs_clip": config.obs_clip,
            "actions": actions,
        }
    if config.small_net:
        raise UsageError(
            f"--small-net: the MLP cannot see the images of {config.env_name}; leave the flag out "
            "to use the Convnet-LSTM, or name another environment with --env-name"
        )
    for name in ("obs_norm", "hidden_sizes", "activation"):
        value = getattr(config, name)
        if value != FIELDS[name].default:
            raise UsageError(
                f"{flag_with_value(name, value)}: is for the MLP, and the images of "
                f"{config.env_name} are seen by the Convnet-LSTM; leave it out"
            )
    return {"kind": "convlstm", "inputs": shape[0], "vbn": config.vbn, "actions": actions}


def _describe_environment(config: Config) -> dict[str, Any]:
    others: Any = {name: getattr(config, name) for name in SETTINGS_OF_ENVIRONMENT[2:]}
    others["keeps_shape"] = config.net is not None
    return describe_env(config.env_name, config.env_kwargs, **others)


def _describe_actions(config: Config, actions: dict[str, Any]) -> dict[str, Any]:
    kind = actions["kind"]
    if config.greedy and not config.sample_actions:
        raise UsageError("--greedy: this policy draws no actions (--sample-actions); leave it out")
    if kind in ("discrete", "multi-discrete"):
        actions = actions | {"sample": config.sample_actions and not config.greedy}
    if kind == "box":
        squash = {"squash": config.squash, "noise": config.action_noise}
        return actions | {"bins": config.action_bins} | squash
    for name in ("action_bins", "action_noise", "squash"):
        if (value := getattr(config, name)) != FIELDS[name].default:
            raise UsageError(
                f"{flag(name)} {value}: is for continuous actions, and those of {config.env_name} "
                f"are {kind}"
            )
    return actions


def _parameters(
    config: Config,
    network: dict[str, Any],
    restored: Checkpoint | None,
    initial: FloatArray | None,
    untrained: Collection[str],
) -> FloatArray:
    """Return the restored parameters, or else the initial ones, or else new ones."""
    if restored is None:
        if initial is not None:
            return initial
        (seed,) = derive_seeds(config.seed or 0, 0, Stream.PARAMETERS, 1)
        theta = initial_theta(network, seed)
        return np.zeros_like(theta) if config.init == "zero" else theta
    own = restored.parameters
    try:
        return flatten(network, {name: own[name] for name in own if name not in untrained})
    except (ValueError, AttributeError, RuntimeError) as error:
        raise UsageError(
            f"--restore {config.restore}: does not fit "
            f"{f'--net {config.net}' if config.net else f'--env-name {config.env_name}'}: {error}"
        ) from error


def _vbn_batch(
    config: Config, environment: dict[str, Any], restored: Checkpoint | None
) -> FloatArray:
    """Return the batch of virtual batch normalisation: the checkpoint's, or else a new one."""
    if restored is None or not restored.config or not restored.config.vbn:
        (seed,) = derive_seeds(config.seed or 0, 0, Stream.VBN_BATCH, 1)
        blame = as_usage_error(f"--env-name {config.env_name}: cannot be played")
        with blame, closing(make_env(environment)) as env:
            from es.environments.images import gather_frames  # this loads kernels

            return gather_frames(env, seed)
    batch = restored.vbn_batch
    if batch is None or not len(batch) or not batch.isfinite().all():
        raise UsageError(f"--restore {config.restore}: is damaged (its vbn_batch)")
    return batch.numpy()


def restored_normalizer(
    config: Config, inputs: int, restored: Checkpoint | None
) -> Normalizer | None:
    """Return the statistics of observations: the checkpoint's, or else new ones.

    inputs: how many numbers an observation has. If it is 0, observations are not normalised: return
    None. Raise UsageError if the checkpoint's statistics are damaged.
    """
    if not inputs:
        return None
    normalizer = Normalizer(inputs, config.obs_std_floor)
    if restored and restored.config and restored.config.obs_norm:
        try:
            normalizer.load(restored.normalizer or {})
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise UsageError(f"--restore {config.restore}: is damaged ({error!r})") from error
    return normalizer
