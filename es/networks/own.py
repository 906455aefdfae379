"""Networks of the user's own: torch modules, played as they are.

A plain dict describes one: `{"kind": "own", "net": "MODULE:CLASS", "kwargs": {...}, "inputs": n,
"pictures": [key, ...], "normalize": bool, "actions": {...}, "shapes": {name: [n, ...]}}`. inputs:
the numbers of an observation, but for pictures, which are not normalised: their keys in a Dict.
shapes: of the parameters that are trained, in theta's order. Only workers that play such a network
import this module, and torch.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from es.errors import UsageError, as_usage_error, find_named
from es.networks import count_outputs

torch.set_num_threads(1)  # as es.model does, which workers do not import


class Own(NamedTuple):
    """What a process needs to make the module, besides the description; it can be pickled.

    observations, actions: the spaces that the constructor gets. kept: the arrays, by name, of its
    buffers and of the parameters that require no gradient, none of which are trained.
    """

    observations: spaces.Space
    actions: spaces.Space
    kept: dict[str, np.ndarray]


def make_own_module(network: Mapping[str, Any], own: Own, seed: int = 0) -> nn.Module:
    """Make the described module, and have it look at zeros; raise UsageError if that fails.

    seed: of torch's generator, which is left as it was.
    """
    named, given = f"--net {network['net']}", network["kwargs"]
    make = find_named("--net", network["net"], "class")
    arguments = "".join(f" {key}={value}" for key, value in given.items())
    flags = f"{named} --net-kwargs{arguments}" if given else named
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        with as_usage_error(f"{flags}: cannot be made as CLASS(observation_space, action_space)"):
            module: Any = make(own.observations, own.actions, **given)
        if not isinstance(module, nn.Module):
            raise UsageError(f"{named}: is to make a torch.nn.Module, not {type(module).__name__}")
        module.eval()
        with as_usage_error(f"{named}: cannot be played by forward(observation, state)"):
            # This makes the parameters of lazy layers.
            outputs, _ = with_state(module(_zeros(own.observations), None))
        for name, tensor in kept_tensors(module).items():
            if name in own.kept:
                tensor.copy_(torch.from_numpy(own.kept[name]))
    wanted = count_outputs(network["actions"])
    found = type(outputs).__name__
    if isinstance(outputs, Tensor):
        found = f"{outputs.dtype} of the shape {tuple(outputs.shape)}"
    if found != f"torch.float32 of the shape ({wanted},)":
        raise UsageError(
            f"{named}: its forward gives {found}, and these actions need torch.float32 of the "
            f"shape ({wanted},) (es.count_outputs says how many), or that and a state"
        )
    return module


def _zeros(space: spaces.Space) -> Any:
    if isinstance(space, spaces.Dict):
        return {key: _zeros(part) for key, part in space.items()}
    return torch.zeros(space.shape or ())


def trained_parameters(module: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters that theta holds: those that require a gradient, each once."""
    return {name: each for name, each in module.named_parameters() if each.requires_grad}


def kept_tensors(module: nn.Module) -> dict[str, Tensor]:
    """Return what is not trained: buffers, and parameters that require no gradient."""
    frozen = {name: each for name, each in module.named_parameters() if not each.requires_grad}
    return frozen | dict(module.named_buffers())


def tied_names(module: nn.Module) -> set[str]:
    """Return the further names that a state dict has for tensors of another name."""
    return module.state_dict().keys() - trained_parameters(module).keys() - {*kept_tensors(module)}


def with_state(given: Any) -> tuple[Any, Any]:
    """Return the outputs and the state for the next step, from what `forward` gives."""
    return given if isinstance(given, tuple) and len(given) == 2 else (given, None)
