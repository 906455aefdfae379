"""How a network sees an environment's observations, as torch modules.

A view is called with an observation, as tensors in the shape of its space, and with its own state,
of which `initial` is the first (None: it has none). It returns what the network sees and its next
state. Tests hold the views to `es.environments.spaces.Preprocessor`.
"""

import math
from collections.abc import Mapping
from typing import Any

import gymnasium
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn import functional

from es.algorithm.noise import DoubleArray
from es.environments.images import ALPHA, ImageObservation
from es.environments.spaces import as_network_sees


def make_view(
    bare: gymnasium.Env,
    statistics: DoubleArray | None = None,
    clip: float = math.inf,
    *,
    keeps_shape: bool = False,
) -> nn.Module:
    """Return the view of the environment that `es.envs.make_bare_env` makes.

    statistics: (2, inputs), means and 1 / standard deviation, if observations are normalised. clip:
    where they end, in deviations. keeps_shape: as for `as_network_sees`.
    """
    space, seen = bare.observation_space, as_network_sees(bare, "", keeps_shape=keeps_shape)
    if isinstance(seen, ImageObservation):
        return ImageView(seen, next(iter(space)) if isinstance(space, spaces.Dict) else None)
    if keeps_shape and isinstance(space, spaces.Dict):
        return DictView()
    return VectorView(space, seen.observation_space.shape or (), statistics, clip)


class VectorView(nn.Module):
    """Flatten observations as Gymnasium does, normalise them, and give them a shape: float32."""

    initial = None
    statistics: Tensor | None

    def __init__(
        self,
        space: spaces.Space,
        shape: tuple[int, ...],
        statistics: DoubleArray | None = None,
        clip: float = math.inf,
    ) -> None:
        super().__init__()
        self._space, self._shape, self._clip = space, shape, clip
        self.register_buffer("statistics", None if statistics is None else torch.tensor(statistics))

    def forward(self, observation: Any, state: None) -> tuple[Tensor, None]:
        """Return the numbers, computed in float64 where they are normalised."""
        dtype = torch.float32 if self.statistics is None else torch.float64
        numbers = torch.cat(_flat(self._space, observation, dtype))
        if self.statistics is not None:
            mean, factor = self.statistics
            numbers = ((numbers - mean) * factor).clamp(-self._clip, self._clip).float()
        return numbers.reshape(self._shape), None


def _flat(space: spaces.Space, observation: Any, dtype: torch.dtype) -> list[Tensor]:
    """Return the vectors that make up an observation; discrete parts become one-hot."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts = space.items() if isinstance(space, spaces.Dict) else enumerate(space)
        return [each for key, part in parts for each in _flat(part, observation[key], dtype)]
    if isinstance(space, spaces.Discrete):
        choices, counts = observation - int(space.start), [int(space.n)]
    elif isinstance(space, spaces.MultiDiscrete):
        choices, counts = observation - torch.tensor(space.start), space.nvec.reshape(-1).tolist()
    else:
        return [observation.reshape(-1).to(dtype)]
    return [
        functional.one_hot(choice.long(), count).to(dtype)
        for choice, count in zip(choices.reshape(-1).unbind(), counts, strict=True)
    ]


class DictView(nn.Module):
    """Show a Dict as it is, in float32."""

    initial = None

    def forward(self, observation: Mapping[str, Any], state: None) -> tuple[Any, None]:
        """Return the entries."""
        return _as_floats(observation), None


def _as_floats(observation: Any) -> Any:
    if isinstance(observation, Mapping):
        return {key: _as_floats(part) for key, part in observation.items()}
    return observation.float()


class ImageView(nn.Module):
    """Shrink and normalise images as `ImageObservation` does, of which it has the matrices.

    key: of the image in a Dict; None: the observation is the image. state: (3,) float64, the
    running averages of the images' mean, of their standard deviation, and of 1, which corrects both
    for their start at 0.
    """

    initial = torch.zeros(3, dtype=torch.float64)
    rows: Tensor
    columns: Tensor

    def __init__(self, wrapper: ImageObservation, key: str | None = None) -> None:
        super().__init__()
        self._key, self._crop, self._axis = key, wrapper.crop, wrapper.channel_axis
        self._high = float(wrapper.high)
        self.register_buffer("rows", torch.tensor(wrapper.rows))
        self.register_buffer("columns", torch.tensor(wrapper.columns))

    def forward(self, observation: Any, state: Tensor) -> tuple[Tensor, Tensor]:
        """Return the image, (1, 42, 42) float32, and the new averages."""
        gray = (observation if self._key is None else observation[self._key]).float()
        if self._axis is not None:
            gray = gray.mean(dim=self._axis)
        image = self.rows @ (gray[self._crop] / self._high) @ self.columns.T
        numbers = image.double()
        mean = numbers.mean()
        std = ((numbers - mean) ** 2).mean().sqrt()
        new = torch.stack([mean, std, torch.ones_like(mean)])
        state = ALPHA * state + (1 - ALPHA) * new
        centre, spread = (state[0] / state[2]).float(), (state[1] / state[2] + 1e-8).float()
        return ((image - centre) / spread)[None], state
