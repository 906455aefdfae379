"""What a network sees of an environment's observations, as torch modules.

A view is called with an observation, as tensors in the shape of its space, and with its own state,
of which `initial` is the first (None: it has none). It returns what the network sees and its next
state. Tests hold the views to `es.environments.observations.View`.
"""

import math
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn import functional

from es.algorithm.noise import DoubleArray
from es.environments.images import MIDDLE_SIZE, NORMALIZER_ALPHA, PLAY_FIELD, SIZE, ImageView
from es.environments.screens import ScreenView, image_view, resampling
from es.environments.spaces import is_image, without_text

WEIGHT_BITS = 11  # of OpenCV's weights of a pixel


def make_view(
    env: gymnasium.Env, statistics: DoubleArray | None = None, clip: float = math.inf
) -> nn.Module:
    """Return the view of what `es.envs.make_bare_env` makes and `take_picture` returns.

    statistics: (2, inputs), means and 1 / standard deviation, if observations are normalised. clip:
    where they end, in deviations.
    """
    if not is_image(env.observation_space):
        return VectorView(without_text(env.observation_space), statistics, clip)
    view = image_view(env)
    return NormalizedImages(ShrinkScreen() if isinstance(view, ScreenView) else ShrinkImage(view))


class VectorView(nn.Module):
    """Flatten observations as Gymnasium does, and normalise them: (inputs,) float32."""

    initial = None
    statistics: Tensor | None

    def __init__(
        self, space: spaces.Space, statistics: DoubleArray | None, clip: float = math.inf
    ) -> None:
        super().__init__()
        self._space, self._clip = space, clip
        self.register_buffer("statistics", None if statistics is None else as_tensor(statistics))

    def forward(self, observation: Any, state: None) -> tuple[Tensor, None]:
        """Return the numbers, computed in float64 where they are normalised."""
        dtype = torch.float32 if self.statistics is None else torch.float64
        numbers = torch.cat(_flat(self._space, observation, dtype))
        if self.statistics is None:
            return numbers, None
        mean, factor = self.statistics
        return ((numbers - mean) * factor).clamp(-self._clip, self._clip).float(), None


def _flat(space: spaces.Space, observation: Any, dtype: torch.dtype) -> list[Tensor]:
    """Return the vectors that make up an observation; discrete parts become one-hot."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts = space.items() if isinstance(space, spaces.Dict) else enumerate(space)
        return [each for key, part in parts for each in _flat(part, observation[key], dtype)]
    if isinstance(space, spaces.Discrete):
        choices, counts = observation - int(space.start), [int(space.n)]
    elif isinstance(space, spaces.MultiDiscrete):
        choices, counts = observation - as_tensor(space.start), space.nvec.reshape(-1).tolist()
    else:
        return [observation.reshape(-1).to(dtype)]
    return [
        functional.one_hot(choice.long(), count).to(dtype)
        for choice, count in zip(choices.reshape(-1).unbind(), counts, strict=True)
    ]


class NormalizedImages(nn.Module):
    """Shrink images and normalise them as `es.environments.images.ImageNormalizer` does.

    state: (3,) float64, the running averages of the images' mean, of their standard deviation, and
    of 1, which corrects both for their start at 0.
    """

    initial = torch.zeros(3, dtype=torch.float64)

    def __init__(self, shrink: nn.Module) -> None:
        super().__init__()
        self._shrink = shrink

    def forward(self, observation: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Return the image, (1, 42, 42) float32, and the new averages."""
        image = self._shrink(observation)
        numbers = image.double()
        mean = numbers.mean()
        std = ((numbers - mean) ** 2).mean().sqrt()
        new = torch.stack([mean, std, torch.ones_like(mean)])
        state = NORMALIZER_ALPHA * state + (1 - NORMALIZER_ALPHA) * new
        centre, spread = (state[0] / state[2]).float(), (state[1] / state[2] + 1e-8).float()
        return ((image - centre) / spread)[None], state


class ShrinkScreen(nn.Module):
    """Shrink the play field of an Atari screen without rounding, as `ScreenView` does."""

    def __init__(self) -> None:
        super().__init__()
        first, weights = resampling()
        matrix = np.zeros((SIZE, PLAY_FIELD.stop - PLAY_FIELD.start), np.float32)
        rows = np.arange(SIZE)[:, np.newaxis]
        matrix[rows, first[:, np.newaxis] + np.arange(4)] = weights.reshape(SIZE, 4)
        self.matrix: Tensor
        self.register_buffer("matrix", as_tensor(matrix))

    def forward(self, screen: Tensor) -> Tensor:
        """Return the image, (42, 42) float32 in [0, 1]. screen: (height, 160[, 3]) bytes."""
        field = screen[PLAY_FIELD].double()
        brightness = (field.mean(dim=2) if field.dim() == 3 else field) / 255
        return self.matrix @ brightness.float() @ self.matrix.T


class ShrinkImage(nn.Module):
    """Shrink images as `ImageView` does by OpenCV: to 80 pixels a side, then to 42."""

    def __init__(self, view: ImageView) -> None:
        super().__init__()
        self._view = view
        shape = view.space.shape
        channels_last = shape[1:] if view.channels_first else shape[:2]
        height, width = len(range(channels_last[0])[view.rows]), channels_last[1]
        is_bytes = view.to_bytes is None
        self._resize = nn.Sequential(
            Resize(height, width, MIDDLE_SIZE, is_bytes=is_bytes),
            Resize(MIDDLE_SIZE, MIDDLE_SIZE, SIZE, is_bytes=is_bytes),
        )

    def forward(self, image: Tensor) -> Tensor:
        """Return the image, (42, 42) float32 in [0, 1]."""
        if self._view.to_bytes is not None:
            image = image.float() * float(self._view.to_bytes)
        if self._view.channels_first:
            image = image.movedim(0, 2)
        image = image[self._view.rows]
        pixels = image.reshape(*image.shape[:2], -1).double()
        return self._resize(pixels).mean(dim=2).float() / 255


class Resize(nn.Module):
    """Resize an image bilinearly as OpenCV does: (height, width, channels) float64 to a square.

    Of bytes, OpenCV's weights have 11 bits, and it drops bits in between. columns, rows: (2, size),
    the two pixels of which each new one is a weighted sum.
    """

    columns: Tensor
    column_weights: Tensor
    rows: Tensor
    row_weights: Tensor

    def __init__(self, height: int, width: int, size: int, *, is_bytes: bool) -> None:
        super().__init__()
        self._is_bytes = is_bytes
        for name, pixels in (("column", width), ("row", height)):
            at = (np.arange(size) + 0.5) * (pixels / size) - 0.5
            first = np.floor(at).astype(np.int64)
            share = (at - first).astype(np.float32)
            if name == "column":  # beyond the edge; of rows, both are then the outermost one
                share[(first < 0) | (first >= pixels - 1)] = 0
                first = first.clip(0)
            weights = np.stack([1 - share, share])
            if is_bytes:
                weights = np.rint(weights * 2**WEIGHT_BITS)
            both = np.stack([first, first + 1]).clip(0, pixels - 1)
            self.register_buffer(f"{name}s", as_tensor(both))
            self.register_buffer(f"{name}_weights", as_tensor(weights.astype(np.float64)))

    def forward(self, image: Tensor) -> Tensor:
        """Return the resized image."""
        left, right = image[:, self.columns[0]], image[:, self.columns[1]]
        weights = self.column_weights[:, :, None]
        rows = left * weights[0] + right * weights[1]
        above, below = rows[self.rows[0]], rows[self.rows[1]]
        weights = self.row_weights[:, :, None, None]
        if not self._is_bytes:
            return above * weights[0] + below * weights[1]
        above = ((above / 2**4).floor() * weights[0] / 2**16).floor()
        below = ((below / 2**4).floor() * weights[1] / 2**16).floor()
        return ((above + below + 2) / 2**2).floor()


def as_tensor(array: np.ndarray) -> Tensor:
    """Return a tensor of its own memory."""
    return torch.from_numpy(np.array(array))
