"""Images as the Convnet-LSTM takes them: shrunk, gray, and normalised by running averages."""

from collections.abc import Callable
from typing import Any, Protocol

import ale_py
import cv2
import gymnasium
import numpy as np
from gymnasium import spaces

from es.algorithm.noise import FloatArray
from es.errors import MisfitError
from es.kernels.images import standardize

SIZE, MIDDLE_SIZE = 42, 80  # of the sides; two steps, since one alone would skip pixels
PLAY_FIELD, ATARI_WIDTH = slice(34, 194), 160  # of an Atari screen: these rows, all columns
NORMALIZER_ALPHA = 0.9999
OBSERVATIONS = spaces.Box(-np.inf, np.inf, (1, SIZE, SIZE), np.float32)

cv2.setNumThreads(1)


def preprocess(frame: np.ndarray) -> FloatArray:
    """Shrink a frame and take the mean of its channels: (1, 42, 42) float32 in [0, 1].

    frame: (height, width[, channels]), 0 to 255.
    """
    small = cv2.resize(cv2.resize(frame, (MIDDLE_SIZE, MIDDLE_SIZE)), (SIZE, SIZE))
    gray = small.reshape(SIZE, SIZE, -1).mean(axis=2, dtype=np.float32)
    return (gray / np.float32(255))[np.newaxis]


def as_image(observation: Any, space: spaces.Space) -> np.ndarray:
    """Return an observation as an array of bytes or of float32, which OpenCV takes.

    Whole numbers become bytes where the space has bytes. Raise MisfitError for another shape.
    """
    image = np.asarray(observation)
    if image.shape != space.shape or image.dtype.kind not in "buif":
        raise MisfitError(
            f"its observation has the shape {image.shape} and the type {image.dtype}, and should "
            f"be an image of the shape {space.shape}"
        )
    are_bytes = space.dtype == np.uint8 and image.dtype.kind != "f"
    return image.astype(np.uint8 if are_bytes else np.float32, copy=False)


class ImageNormalizer:
    """Normalise images by running averages of their means and standard deviations."""

    def __init__(self) -> None:
        self._averages, self._sums = np.empty(3), np.empty(SIZE)
        self._out = np.empty((1, SIZE, SIZE), np.float32)
        self._flat = self._out.reshape(-1)

    def reset(self) -> None:
        """Forget the images of the previous episode."""
        self._averages[:] = 0, 0, 1

    def __call__(self, image: FloatArray) -> FloatArray:
        """Return (image - mean) / (std + 1e-8): (1, 42, 42) float32, valid until the next call.

        Both averages are corrected for their start at 0. image: (1764,).
        """
        standardize(image, self._averages, NORMALIZER_ALPHA, self._sums, self._flat)
        return self._out


class Preprocessor(Protocol):
    """What turns an observation into the image that the network sees."""

    reset: Callable[[], None]  # starts an episode

    def __call__(self, observation: np.ndarray) -> FloatArray:
        """Return the image: (1, 42, 42), valid until the next call."""


class ImageView:
    """Turn an environment's images into what the network sees; of Atari screens, the play field.

    to_bytes: the factor that makes numbers of the images go up to 255; None: they are bytes, which
    OpenCV rounds to bytes in between.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        space: Any = env.observation_space
        self.space, shape = space, space.shape
        self.channels_first = len(shape) == 3 and shape[0] < shape[2]
        height, width = shape[-2:] if self.channels_first else shape[:2]
        has_size = width == ATARI_WIDTH and height >= PLAY_FIELD.stop
        self.is_screen = has_size and isinstance(env.unwrapped, ale_py.AtariEnv)
        self.rows = PLAY_FIELD if self.is_screen else slice(None)
        rounded = space.dtype == np.uint8 and not self.is_screen
        self.to_bytes = None if rounded else np.float32(255 / space.high.max())
        self._normalizer = ImageNormalizer()
        self.reset = self._normalizer.reset

    def __call__(self, observation: np.ndarray) -> FloatArray:
        """Return the preprocessed and normalised image: (1, 42, 42), valid until the next call.

        Raise MisfitError for an observation of another shape.
        """
        observation = as_image(observation, self.space)
        if self.to_bytes is not None:
            observation = self.to_bytes * observation
        if self.channels_first:
            observation = np.ascontiguousarray(np.moveaxis(observation, 0, 2))
        return self._normalizer(preprocess(observation[self.rows]).reshape(-1))


class PreprocessImage(gymnasium.ObservationWrapper):
    """Turn observations into the images that the network sees."""

    def __init__(self, env: gymnasium.Env, view: Preprocessor) -> None:
        super().__init__(env)
        self.observation_space = OBSERVATIONS
        self._view = view

    def reset(self, **kwargs: Any) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode with a fresh normaliser."""
        self._view.reset()
        return super().reset(**kwargs)

    def observation(self, observation: np.ndarray) -> FloatArray:
        """Return the preprocessed and normalised image."""
        return self._view(observation)
