"""A network of the user's own: from --net to what is played."""

import math
from typing import Any

import gymnasium
import numpy as np
import torch

from es.checkpoint import Checkpoint
from es.config import FIELDS, OF_OUR_NETWORKS, Config, flag_with_value, read_assignments
from es.environments.spaces import seen_as_image
from es.errors import UsageError, as_usage_error
from es.networks.own import Own, kept_tensors, make_own_module, trained_parameters
from es.noise import FloatArray, Stream, derive_seeds, seed_shared_generators

RESERVED = ("optimizer.", "normalizer.", "sigma.", "vbn_batch")  # names in checkpoints


def describe_own(
    config: Config, env: gymnasium.Env, actions: dict[str, Any], restored: Checkpoint | None
) -> tuple[dict[str, Any], Own, FloatArray]:
    """Return the network's description, what its module needs, and its initial parameters.

    env: as the policy sees it. actions: the description of its actions. The parameters are (P,)
    float32. Raise UsageError if the module cannot be made, played or saved, or does not fit the
    checkpoint.
    """
    named = f"--net {config.net}"
    for name in OF_OUR_NETWORKS:
        value = getattr(config, name)
        if value != FIELDS[name].default:
            raise UsageError(
                f"{flag_with_value(name, value)}: is for the networks of this program, and {named} "
                "is your own; leave it out (--net-kwargs are the arguments of your class)"
            )
    space = env.observation_space
    parts = dict(space) if isinstance(space, gymnasium.spaces.Dict) else {"": space}
    pictures = [key for key, part in parts.items() if seen_as_image(part)]
    if config.obs_norm and len(pictures) == len(parts):
        raise UsageError("--obs-norm: images are normalised in their own way; leave it out")
    sizes = [math.prod(part.shape or ()) for key, part in parts.items() if key not in pictures]
    network: dict[str, Any] = {
        "kind": "own",
        "net": config.net,
        "kwargs": read_assignments(config.net_kwargs),
        "inputs": sum(sizes),
        "pictures": pictures,
        "normalize": config.obs_norm,
        "obs_clip": config.obs_clip,
        "actions": actions,
    }
    (seed,) = derive_seeds(config.seed or 0, 0, Stream.PARAMETERS, 1)
    if restored is None:  # or else a program of the user's own may be loading a policy
        seed_shared_generators(seed)
    own = Own(space, env.action_space, {})
    module = make_own_module(network, own, seed)
    trained, kept = trained_parameters(module), kept_tensors(module)
    if not trained:
        raise UsageError(f"{named}: has no parameters that require a gradient, so none to train")
    for name, tensor in (trained | kept).items():
        if name.startswith(RESERVED):
            raise UsageError(f"{named}: a checkpoint has a {name} of its own; rename this one")
        if name in trained and tensor.dtype != torch.float32:
            raise UsageError(f"{named}: {name} holds {tensor.dtype}; make it torch.float32")
    with as_usage_error(f"{named}: cannot be saved"):
        theta = np.concatenate([each.detach().numpy().reshape(-1) for each in trained.values()])
        arrays = {name: each.detach().numpy().copy() for name, each in kept.items()}
    network["shapes"] = {name: list(each.shape) for name, each in trained.items()}
    return network, own._replace(kept=_restored(arrays, config, restored)), theta


def _restored(
    kept: dict[str, np.ndarray], config: Config, restored: Checkpoint | None
) -> dict[str, np.ndarray]:
    """Return what is not trained as it was saved; weights alone may lack some of it."""
    saved = restored.parameters if restored else {}
    found = {name: saved[name].numpy() for name in kept if name in saved}
    odd = [name for name in found if _kind(found[name]) != _kind(kept[name])]
    odd += sorted(kept.keys() - saved.keys()) if restored and restored.config else []
    if odd:
        raise UsageError(
            f"--restore {config.restore}: does not fit --net {config.net}: {odd[0]} is another"
        )
    return kept | found


def _kind(array: np.ndarray) -> tuple[Any, ...]:
    return array.shape, array.dtype
