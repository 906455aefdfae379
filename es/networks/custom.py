"""Networks given by --net: torch modules of the user's, played as they are.

Workers import this module, and torch, only if they play such a network.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Tensor, nn

from es.algorithm.noise import FloatArray, seed_shared_generators
from es.checkpoint import NORMALIZER, OPTIMIZER, RELATIVE_SIGMA, VBN_BATCH
from es.config import Config, read_assignments
from es.environments.images import OBSERVATIONS
from es.environments.spaces import as_numbers, describe_actions
from es.errors import UsageError, as_usage_error, find_named
from es.networks import clip_of, kernels, outputs_needed, split
from es.networks.actors import NetworkActor, NoiseSeeds

RESERVED = (OPTIMIZER, NORMALIZER, RELATIVE_SIGMA, VBN_BATCH)  # checkpoints' own names


class Custom(NamedTuple):
    """What a process needs to make the module, besides the description; it can be pickled.

    observations, actions: the spaces that the constructor gets. untrained: the arrays of the
    module's state dict that theta does not hold, by name: buffers, and parameters that require no
    gradient.
    """

    observations: Space
    actions: Space
    untrained: dict[str, np.ndarray]


def count_outputs(space: Space, bins: int | None = None) -> int:
    """Return how many outputs a network needs to choose actions of a space.

    bins: --action-bins, if that is given. Raise UsageError if the space is not supported.
    """
    return outputs_needed(describe_actions(space, "") | {"bins": bins})


def describe_custom(
    config: Config,
    observations: Space,
    action_space: Space,
    actions: dict[str, Any],
    saved: Mapping[str, Tensor] | None,
    seed: int,
) -> tuple[dict[str, Any], Custom, FloatArray]:
    """Return the network's description, what its module needs, and its initial parameters.

    observations: the space that the policy sees. actions: the description of action_space. saved:
    a checkpoint's tensors by name, of which the untrained ones are taken. seed: of the initial
    parameters, which are (P,) float32. Raise UsageError if the module cannot be made, played or
    saved.
    """
    named = f"--net {config.net}"
    if config.obs_norm and (isinstance(observations, spaces.Dict) or observations == OBSERVATIONS):
        raise UsageError(
            f"--obs-norm does not apply to the Dict or image observations of {named} (images are "
            "normalised anyway). Remove it"
        )
    network: dict[str, Any] = {
        "kind": "custom",
        "net": config.net,
        "kwargs": read_assignments(config.net_kwargs),
        "inputs": math.prod(observations.shape or ()),
        "normalize": config.obs_norm,
        "obs_clip": config.obs_clip,
        "actions": actions,
    }
    if saved is None:  # a program that loads a policy keeps its generators
        seed_shared_generators(seed)
    module = make_custom_module(network, Custom(observations, action_space, {}), seed)
    trained = {name: each for name, each in module.named_parameters() if each.requires_grad}
    if not trained:
        raise UsageError(f"{named}: no parameter requires a gradient, so there is none to train")
    network["shapes"] = {name: list(each.shape) for name, each in trained.items()}
    # A parameter that two modules share has two names, and is saved under the first.
    names = {name for name, _ in module.named_parameters(remove_duplicate=False)}
    network["shared"] = sorted(names - {name for name, _ in module.named_parameters()})
    saved_elsewhere = {*trained, *network["shared"]}
    untrained = {
        name: each for name, each in module.state_dict().items() if name not in saved_elsewhere
    }
    for name in module.state_dict():
        if name.startswith(RESERVED):
            raise UsageError(f"{named}: the name {name} is reserved in checkpoints. Rename it")
    with as_usage_error(f"--restore {config.restore}: does not fit {named}"):
        found = {name: tensor for name, tensor in (saved or {}).items() if name in untrained}
        module.load_state_dict(found, strict=False)
    with as_usage_error(f"{named}: cannot be saved"):
        arrays = {name: each.numpy().copy() for name, each in untrained.items()}
        theta = np.concatenate([each.detach().numpy().ravel() for each in trained.values()])
    return network, Custom(observations, action_space, arrays), theta.astype(np.float32)


def make_custom_module(network: Mapping[str, Any], custom: Custom, seed: int = 0) -> nn.Module:
    """Make the described module, and call it with zeros; raise UsageError if that fails.

    seed: of torch's generator, which is left as it was.
    """
    named, kwargs = f"--net {network['net']}", network["kwargs"]
    make = find_named("--net", network["net"], "class")
    arguments = "".join(f" {key}={value}" for key, value in kwargs.items())
    flags = f"{named} --net-kwargs{arguments}" if kwargs else named
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        with as_usage_error(f"{flags}: cannot be made as CLASS(observation_space, action_space)"):
            module: Any = make(custom.observations, custom.actions, **kwargs)
        if not isinstance(module, nn.Module):
            raise UsageError(f"{named}: must make a torch.nn.Module, not {type(module).__name__}")
        module.eval()
        with as_usage_error(f"{named}: cannot be played by forward(observation, state)"):
            # This makes the parameters of lazy layers.
            outputs, _ = with_state(module(_zeros(custom.observations), None))
        tensors = {name: torch.from_numpy(array) for name, array in custom.untrained.items()}
        module.load_state_dict(tensors, strict=False)
    wanted, found = outputs_needed(network["actions"]), type(outputs).__name__
    if isinstance(outputs, Tensor):
        found = f"a tensor of the shape {tuple(outputs.shape)}"
    if found != f"a tensor of the shape ({wanted},)":
        raise UsageError(
            f"{named}: its forward returns {found}; these actions need a tensor of the shape "
            f"({wanted},), as es.count_outputs(action_space) says, alone or with a state"
        )
    return module


def with_state(result: Any) -> tuple[Any, Any]:
    """Return the outputs and the state for the next step, from what `forward` returns."""
    return result if isinstance(result, tuple) and len(result) == 2 else (result, None)


class TorchActor(NetworkActor):
    """Play the user's module, one observation at a time."""

    def __init__(self, network: Mapping[str, Any], custom: Custom) -> None:
        super().__init__(network)
        self._space, self._clip = custom.observations, clip_of(network)
        self._module = make_custom_module(network, custom)
        self._parameters = dict(self._module.named_parameters())
        # An episode may change buffers, and the next one begins with those of the first.
        self._buffers = {name: each.clone() for name, each in self._module.named_buffers()}
        self._state: Any = None

    def load(self, theta: FloatArray) -> None:
        """Use theta: (P,) float32."""
        for name, part in split(self._network, theta).items():
            np.copyto(self._parameters[name].detach().numpy(), part)

    def reset(self, seed: int | None = None, noise_seeds: NoiseSeeds = None) -> None:
        """Start the episode of a seed, also of what the module draws by torch."""
        super().reset(seed, noise_seeds)
        if seed is not None:
            torch.default_generator.manual_seed(seed)
        with torch.inference_mode():
            for name, buffer in self._module.named_buffers():
                buffer.copy_(self._buffers[name])
        self._state = None

    def act(self, observation: Any) -> Any:
        """Return the action for an observation; raise MisfitError if it does not fit."""
        with torch.inference_mode():
            tensors = self._tensors(observation, self._space)
            outputs, self._state = with_state(self._module(tensors, self._state))
            array = outputs.numpy()
        if array.shape != self.outputs.shape:
            raise ValueError(f"the network returns {array.shape} outputs, not {self.outputs.shape}")
        np.copyto(self.outputs, array)
        return self._decode(int(self.outputs.argmax()))

    def _tensors(self, observation: Any, space: Space) -> Any:
        """Return a new float32 tensor, or a dict of them, since the module may keep it."""
        if isinstance(space, spaces.Dict):
            return {key: self._tensors(observation[key], part) for key, part in space.items()}
        array = as_numbers(observation, space.shape or ())
        # torch's own memory: its alignment decides how the module's sums are rounded.
        tensor = torch.empty(array.shape)
        out = tensor.numpy().reshape(-1)
        if self._statistics is None:
            out[:] = array.reshape(-1)
        else:
            kernels.normalize(array.reshape(-1), self._statistics, self._clip, out)
        return tensor


def _zeros(space: Space) -> Any:
    if isinstance(space, spaces.Dict):
        return {key: _zeros(part) for key, part in space.items()}
    return torch.zeros(space.shape or ())
