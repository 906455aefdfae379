"""Images as the Convnet-LSTM sees them: shrunk, gray, normalised by running averages.

The sides are resized bilinearly to 80 and then to 42 pixels, since one step would skip pixels. Both
steps are linear, so one small matrix a side does both: rows @ gray @ columns.T.
"""

import copy
import itertools
from functools import partial
from typing import Any

import ale_py
import gymnasium
import numba
import numpy as np
from gymnasium import spaces
from numba import boolean, float32, float64, int64, uint8, void

from es.algorithm.noise import FloatArray, Stream, derive_seeds, seed_shared_generators
from es.errors import MisfitError

SIZE, MIDDLE_SIZE = 42, 80  # pixels of a side after both steps, and between them
PLAY_FIELD = slice(34, 194)  # rows of an Atari screen, which is as wide as these are high
ALPHA = 0.9999  # of the running averages
OBSERVATIONS = spaces.Box(-np.inf, np.inf, (1, SIZE, SIZE), np.float32)
VBN_FRAMES = 128
VBN_SHARE = 0.125  # of the frames seen, since neighbours are nearly alike
VBN_MAX_STEPS = 1000  # of an episode, so that an endless one does not fill the batch alone

# "contract" lets a product and a sum be rounded once, together. It reorders nothing.
njit = partial(numba.njit, cache=True, fastmath={"contract"}, error_model="numpy", nogil=True)
_floats, _doubles, _integers, _bytes = float32[::1], float64[::1], int64[::1], uint8[:, ::1]


def resampling(size: int) -> FloatArray:
    """Return the matrix that resizes a side of `size` pixels: (42, size) float32, rows sum to 1."""
    return (_bilinear(MIDDLE_SIZE, SIZE) @ _bilinear(size, MIDDLE_SIZE)).astype(np.float32)


def _bilinear(old: int, new: int) -> np.ndarray:
    """Return the matrix of one bilinear resize: (new, old) float64."""
    centre = (np.arange(new) + 0.5) * old / new - 0.5
    left = np.floor(centre)
    matrix = np.zeros((new, old))
    for pixel, weight in ((left, left + 1 - centre), (left + 1, centre - left)):
        # Beyond the edge lies the outermost pixel again.
        np.add.at(matrix, (np.arange(new), pixel.astype(int).clip(0, old - 1)), weight)
    return matrix


class ImageNormalizer:
    """Normalise images by running averages of their means and standard deviations."""

    def __init__(self) -> None:
        self._averages, self._sums = np.empty(3), np.empty(SIZE)
        self._out = np.empty((1, SIZE, SIZE), np.float32)

    def reset(self) -> None:
        """Forget the images of the previous episode."""
        self._averages[:] = 0, 0, 1

    def __call__(self, image: FloatArray) -> FloatArray:
        """Return (image - mean) / (std + 1e-8): (1, 42, 42) float32, valid until the next call.

        Both averages are corrected for their start at 0. image: (1764,).
        """
        standardize(image, self._averages, ALPHA, self._sums, self._out.reshape(-1))
        return self._out


class ImageObservation(gymnasium.ObservationWrapper):
    """Show images as the network sees them: (1, 42, 42) float32, valid until the next step.

    Of an Atari screen, only the play field is shown. Raise ValueError for an image of another
    shape than that of the observation space.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        space: Any = env.observation_space
        self.observation_space = OBSERVATIONS
        self._shape = shape = space.shape
        self.channel_axis = len(shape) - 1 if len(shape) == 3 else None
        if len(shape) == 3 and shape[0] < shape[2]:
            self.channel_axis = 0
        sides = [side for axis, side in enumerate(shape) if axis != self.channel_axis]
        is_atari = isinstance(env.unwrapped, ale_py.AtariEnv)
        has_field = is_atari and sides[0] >= PLAY_FIELD.stop and sides[1] == 160
        self.crop = PLAY_FIELD if has_field else slice(None)
        self.rows = resampling(len(range(sides[0])[self.crop]))
        self.columns = resampling(sides[1])
        self.high = 255 if space.dtype == np.uint8 else space.high.max()
        self._normalizer = ImageNormalizer()

    def start_episode(self) -> None:
        """Forget the images of the previous episode."""
        self._normalizer.reset()

    def reset(self, **kwargs: Any) -> tuple[FloatArray, dict[str, Any]]:
        """Start an episode with new averages."""
        self.start_episode()
        return super().reset(**kwargs)

    def observation(self, observation: Any) -> FloatArray:
        """Return the shrunk and normalised image."""
        image = np.asarray(observation)
        if image.shape != self._shape:
            raise MisfitError(f"its observation has the shape {image.shape}, not {self._shape}")
        return self._normalizer(self.shrink(image).reshape(-1))

    def shrink(self, image: np.ndarray) -> FloatArray:
        """Return the image in gray: (42, 42) float32 in [0, 1], the mean of the channels."""
        channels = [image]
        if self.channel_axis is not None:
            channels = [*np.moveaxis(image, self.channel_axis, 0)]
        # Not np.mean, which takes ten times as long along so short an axis.
        gray = np.zeros(channels[0][self.crop].shape, np.float32)
        for channel in channels:
            gray += channel[self.crop]
        gray /= len(channels) * self.high
        return np.asarray(self.rows @ gray @ self.columns.T, np.float32)


def gather_frames(env: gymnasium.Env, seed: int) -> FloatArray:
    """Return frames for virtual batch normalisation: (128, 1, 42, 42) float32.

    They are a share of those of random play by `seed`. env: a new one, which shows images as the
    network sees them.
    """
    generator, actions = np.random.default_rng(seed), copy.deepcopy(env.action_space)
    actions.seed(seed)  # no reset seeds the copy
    frames: list[FloatArray] = []
    for episode in itertools.count():
        (episode_seed,) = derive_seeds(seed, episode, Stream.VBN_BATCH, 1)
        seed_shared_generators(episode_seed)
        env.reset(seed=episode_seed)
        for _ in range(VBN_MAX_STEPS):
            observation, _, terminated, truncated, _ = env.step(actions.sample())
            if generator.random() < VBN_SHARE:
                frames.append(observation.copy())
            if len(frames) == VBN_FRAMES or terminated or truncated:
                break
        if len(frames) == VBN_FRAMES:
            break
    return np.stack(frames)


@njit()
def _same(a, b):
    different = np.uint8(0)
    for i in range(a.size):
        different |= a[i] ^ b[i]
    return different == 0


@njit(boolean(_bytes, _bytes, _floats, _integers, _floats, _floats, _floats))
def shrink_screen(screen, seen, table, first, taps, rows, image):
    """Look up a square of bytes in a table, and resample its rows and columns alike.

    screen: (height, height); image: (size * size,). Along a side, pixel i of the image is the sum
    of the 4 pixels from first[i] on, weighted by taps[4 * i] and the next 3. table: (256,), with a
    large negative number for each unknown byte: return False if one makes a sum negative. seen:
    (height, height), the previous screen, which becomes this one. rows: (height * size,), its
    shrunk rows. Only rows that differ from it are looked up again.
    """
    height, size, known = screen.shape[0], first.size, True
    for row in range(height):
        if _same(screen[row], seen[row]):
            continue
        for column in range(height):
            seen[row, column] = screen[row, column]
        for column in range(size):
            at = first[column]
            total = table[screen[row, at]] * taps[4 * column]
            total += table[screen[row, at + 1]] * taps[4 * column + 1]
            total += table[screen[row, at + 2]] * taps[4 * column + 2]
            total += table[screen[row, at + 3]] * taps[4 * column + 3]
            rows[row * size + column] = total
            known &= total >= 0
    for row in range(size):
        above = rows[first[row] * size : (first[row] + 4) * size]
        below = image[row * size : (row + 1) * size]
        t0, t1, t2, t3 = taps[4 * row], taps[4 * row + 1], taps[4 * row + 2], taps[4 * row + 3]
        for column in range(size):
            total = above[column] * t0
            total += above[size + column] * t1
            total += above[2 * size + column] * t2
            total += above[3 * size + column] * t3
            below[column] = total
    return known


@njit(void(_floats, _doubles, float64, _doubles, _floats))
def standardize(image, averages, alpha, sums, out):
    """Fill out with (image - mean) / (std + 1e-8), where both are running averages over images.

    averages: (3,), of the mean and of the std, and alpha to the power of the number of images,
    which corrects both for their start at 0. sums: (lanes,), scratch; lanes divides the size.
    """
    lanes, size = sums.size, image.size
    mean = 0.0
    sums[:] = 0
    for i in range(0, size, lanes):
        for j in range(lanes):
            sums[j] += image[i + j]
    for j in range(lanes):
        mean += sums[j]
    mean /= size
    variance = 0.0
    sums[:] = 0
    for i in range(0, size, lanes):
        for j in range(lanes):
            sums[j] += (image[i + j] - mean) * (image[i + j] - mean)
    for j in range(lanes):
        variance += sums[j]
    averages[0] = alpha * averages[0] + (1 - alpha) * mean
    averages[1] = alpha * averages[1] + (1 - alpha) * np.sqrt(variance / size)
    averages[2] *= alpha
    centre = np.float32(averages[0] / (1 - averages[2]))
    spread = np.float32(averages[1] / (1 - averages[2]) + 1e-8)
    for i in range(size):
        out[i] = (image[i] - centre) / spread
