"""Screens of Atari games as the Convnet-LSTM takes them.

The result is that of `images.preprocess` for the play field, without rounding to bytes in between.
"""

import gymnasium
import numpy as np

from es.algorithm.noise import FloatArray
from es.environments.images import (
    MIDDLE_SIZE,
    PLAY_FIELD,
    SIZE,
    ImageNormalizer,
    ImageView,
    as_image,
    preprocess,
)
from es.environments.spaces import MAX_CHANNELS
from es.kernels.images import shrink

UNKNOWN = -1e6  # the brightness of a colour not seen so far


class FieldView:
    """Turn play fields, squares of bytes that stand for colours, into what the network sees.

    brightness: (256,), of the colours, from 0 to 1. image: (1764,), the last field shrunk.
    """

    def __init__(self, side: int) -> None:
        self.brightness = np.full(256, UNKNOWN, np.float32)
        self.image = np.empty(SIZE * SIZE, np.float32)
        self._seen = np.empty((side, side), np.uint8)
        self._rows = np.empty(side * SIZE, np.float32)
        self._first, self._taps = resampling()
        self._normalizer = ImageNormalizer()
        self.reset = self._normalizer.reset

    def expect_change(self, field: np.ndarray) -> None:
        """Make the next `shrink` look up every row, even if it is given this field."""
        np.invert(field, out=self._seen)

    def shrink(self, field: np.ndarray) -> bool:
        """Shrink a field into the image; return False if a colour's brightness is unknown."""
        return shrink(
            field, self._seen, self.brightness, self._first, self._taps, self._rows, self.image
        )

    def normalized(self) -> FloatArray:
        """Return the normalised image: (1, 42, 42), valid until the next call."""
        return self._normalizer(self.image)


def image_view(env: gymnasium.Env) -> "ScreenView | ImageView":
    """Return the view of an environment's images: of Atari screens, the one that does not round.

    The observation space alone decides, so that wrappers leave what the network sees as it is.
    """
    view = ImageView(env)
    if view.is_screen and not view.channels_first and env.observation_space.dtype == np.uint8:
        return ScreenView(view.space)
    return view


class ScreenView:
    """Turn Gymnasium's screens into what `AtariImages` makes of the emulator's, to the bit.

    observation: (height, 160[, channels]) bytes, gray or in colour. Numbers, and more colours than
    a screen has, which wrappers may make, are shrunk by OpenCV, without rounding either.
    """

    def __init__(self, space: gymnasium.Space) -> None:
        self._space = space
        self._view = FieldView(PLAY_FIELD.stop - PLAY_FIELD.start)
        self._codes = np.zeros(MAX_CHANNELS * 255 + 1, np.uint8)  # by the sum of the channels
        self.reset = self._view.reset

    def __call__(self, observation: np.ndarray) -> FloatArray:
        """Return the image: (1, 42, 42), valid until the next call.

        Raise MisfitError for an observation of another shape.
        """
        field = as_image(observation, self._space)[PLAY_FIELD]
        if field.dtype != np.uint8:
            return self._shrink_numbers(field)
        channels = field.reshape(*field.shape[:2], -1)
        sums = sum((channels[..., i] for i in range(channels.shape[2])), np.uint16(0))
        found = np.flatnonzero(np.bincount(sums.reshape(-1)))
        if found.size > self._view.brightness.size:
            return self._shrink_numbers(field)
        self._codes[found] = np.arange(found.size)
        self._view.brightness[: found.size] = found / channels.shape[2] / 255
        codes = self._codes.take(sums)
        self._view.expect_change(codes)
        self._view.shrink(codes)
        return self._view.normalized()

    def _shrink_numbers(self, field: np.ndarray) -> FloatArray:
        np.copyto(self._view.image, preprocess(field.astype(np.float32)).reshape(-1))
        return self._view.normalized()


def resampling() -> tuple[np.ndarray, FloatArray]:
    """Return how each of 42 pixels is a weighted sum of 4 of 160 pixels.

    The index of the first of the 4: (42,), and the weights: (4 * 42,). Bilinear shrinking to 80
    pixels takes the mean of two neighbours; shrinking to 42 then interpolates between two means.
    """
    centre = (np.arange(SIZE) + 0.5) * MIDDLE_SIZE / SIZE - 0.5
    left = np.floor(centre)
    right_share = (centre - left) / 2
    weights = np.stack([0.5 - right_share, 0.5 - right_share, right_share, right_share], axis=1)
    return (2 * left).astype(np.int64), weights.reshape(-1).astype(np.float32)
