"""The actor that plays a network of the user's own."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from es.errors import MisfitError
from es.kernels.layers import choose
from es.networks import clip_of, count_outputs
from es.networks.actions import Box, NoiseSeeds, Sampler, make_decoder
from es.networks.own import Own, make_own_module, trained_parameters, with_state
from es.noise import DoubleArray, FloatArray


class OwnActor:
    """Play the user's module, one observation at a time.

    outputs: (outputs,), of the last observation.
    """

    def __init__(self, network: Mapping[str, Any], own: Own) -> None:
        self._module = module = make_own_module(network, own)
        self._parts: list[tuple[FloatArray, slice]] = []  # of theta
        stop = 0
        for tensor in trained_parameters(module).values():
            start, stop = stop, stop + tensor.numel()
            self._parts.append((tensor.detach().numpy(), slice(start, stop)))
        self._size = stop
        # An episode may change buffers, and the next one begins with those of the first.
        self._buffers = [
            (owner, name, tensor.clone())
            for owner in module.modules()
            for name, tensor in owner.named_buffers(recurse=False)
        ]
        self._statistics: DoubleArray | None = None
        if network["normalize"]:
            self._statistics = np.zeros((4, network["inputs"]))
            self._statistics[1] = 1
        self._see = _sight(
            own.observations, self._statistics, clip_of(network), network["pictures"]
        )
        count = count_outputs(network["actions"])
        self.outputs = np.zeros(count, np.float32)
        self._counts, self._largest = np.array([count]), np.zeros(1, np.int64)
        self._decode = make_decoder(network["actions"], self.outputs)
        self._state: Any = None

    def bind(self, theta: FloatArray, statistics: DoubleArray | None = None) -> None:
        """Use theta: (P,) float32, and statistics: (2, inputs) for the observations."""
        assert theta.size == self._size
        for array, part in self._parts:
            np.copyto(array, theta[part].reshape(array.shape))
        if self._statistics is not None and statistics is not None:
            self._statistics[:2] = statistics

    def reset(self, seed: int | None = None, noise_seeds: NoiseSeeds = None) -> None:
        """Start the episode of a seed, also of what the module draws by torch."""
        if isinstance(self._decode, Box | Sampler):
            self._decode.reset(seed, noise_seeds)
        if seed is not None:
            torch.default_generator.manual_seed(seed)
        for owner, name, tensor in self._buffers:
            setattr(owner, name, tensor.clone())
        if self._statistics is not None:
            self._statistics[2:] = 0
        self._state = None

    def act(self, observation: Any) -> Any:
        """Return the action for an observation; raise MisfitError if it does not fit."""
        with torch.inference_mode():
            outputs, self._state = with_state(self._module(self._see(observation), self._state))
            found = outputs.numpy()
        if found.shape != self.outputs.shape:
            raise ValueError(f"the network gives {found.shape} outputs, not {self.outputs.shape}")
        np.copyto(self.outputs, found)
        choose(self.outputs, self._counts, self._largest)
        return self._decode(int(self._largest[0]))

    def observed(self) -> DoubleArray | None:
        """Return sums of the deviations since the reset and of their squares: (2, inputs)."""
        return None if self._statistics is None else self._statistics[2:].copy()


def _sight(
    space: spaces.Space, statistics: DoubleArray | None, clip: float, pictures: Sequence[str]
) -> Callable[[Any], Any]:
    """Return what makes tensors of observations, or dicts of tensors of a Dict."""
    if not isinstance(space, spaces.Dict):
        return Sight(space.shape or (), statistics, clip)
    parts: dict[str, Sight] = {}
    stop = 0
    for key, part in space.items():
        shape, own = part.shape or (), None
        if statistics is not None and key not in pictures:
            start, stop = stop, stop + math.prod(shape)
            own = statistics[:, start:stop]
        parts[key] = Sight(shape, own, clip)
    return lambda observation: {key: see(observation[key]) for key, see in parts.items()}


class Sight:
    """Make tensors of observations: a new one each time, since the module may keep it.

    Each lies in memory of torch's own, since the alignment decides how sums are rounded. shape: of
    the observations. statistics: (4, inputs), the means, the factors, and two sums to which a call
    adds, as the compiled MLP does. clip: where normalised observations end.
    """

    def __init__(self, shape: tuple[int, ...], statistics: DoubleArray | None, clip: float) -> None:
        self._tensor, self._shape, self._statistics = torch.zeros(shape), shape, statistics
        self._clip = clip
        self._array = self._tensor.numpy()

    def __call__(self, observation: Any) -> Tensor:
        """Return the observation as a float32 tensor; raise MisfitError if it does not fit."""
        try:
            fits = np.shape(observation) == self._shape
            with np.errstate(all="ignore"):  # infinite, or too large for float32
                if fits and self._statistics is not None:
                    self._normalize(np.asarray(observation), self._statistics)
                elif fits:
                    np.copyto(self._array, observation)
        except (TypeError, ValueError):
            fits = False
        if not fits:
            raise MisfitError(
                f"its observation is {type(observation).__name__}, and should hold numbers in the "
                f"shape {self._shape}",
                steps_ago=1,
            )
        return self._tensor.clone()

    def _normalize(self, observation: np.ndarray, statistics: DoubleArray) -> None:
        means, factors, sums, squares = statistics
        deviations = observation.reshape(-1) - means
        sums += deviations
        squares += deviations * deviations
        normalized = np.clip(deviations * factors, -self._clip, self._clip)
        np.copyto(self._array.reshape(-1), normalized, "same_kind")
