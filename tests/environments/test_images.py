"""Images as the networks see them."""

import cv2
import numpy as np
import pytest
from gymnasium import spaces

from es.environments.images import ImageNormalizer, ImageObservation, gather_frames, resampling
from es.envs import describe_env, make_env
from tests.strange import Strange


@pytest.mark.parametrize("size", [28, 96, 160, 601])
def test_the_matrix_is_that_of_two_bilinear_resizes(size):
    expected = cv2.resize(cv2.resize(np.eye(size), (size, 80)), (size, 42))
    np.testing.assert_allclose(resampling(size), expected, atol=1e-6)


def test_a_frame_is_shrunk_as_by_two_resizes_of_its_gray_pixels():
    frame = np.random.default_rng(0).integers(0, 256, (96, 120, 3), dtype=np.uint8)
    gray = frame.mean(axis=2, dtype=np.float32) / 255
    expected = cv2.resize(cv2.resize(gray, (80, 80)), (42, 42))
    env = ImageObservation(Strange(spaces.Box(0, 255, frame.shape, np.uint8)))
    np.testing.assert_allclose(env.shrink(frame), expected, atol=1e-6)


def test_images_of_other_shapes_and_types_are_seen_alike():
    upright = np.zeros((60, 80, 3), np.uint8)
    upright[:30] = 200
    for frame in (
        upright, upright[..., 0], np.moveaxis(upright, 2, 0), upright[..., [0, 1, 2, 0]],
        (upright / 255).astype(np.float32), upright.astype(np.float64),
    ):  # fmt: skip
        high = 255 if frame.max() > 1 else 1
        env = ImageObservation(Strange(spaces.Box(0, high, frame.shape, frame.dtype.type)))
        image = env.shrink(frame)
        assert image[:20] == pytest.approx(200 / 255)
        assert image[22:] == pytest.approx(0)
    with pytest.raises(ValueError, match=r"shape \(84, 84\), not \(60, 80, 3\)"):
        env.observation(np.zeros((84, 84)))


def test_the_normaliser_against_its_formula():
    """Exponential averages of mean and deviation, each divided by 1 - alpha^t."""
    normalizer, alpha = ImageNormalizer(), 0.9999
    normalizer.reset()
    frames = np.random.default_rng(0).random((30, 1, 42, 42)).astype(np.float32)
    for t, image in enumerate(frames, start=1):
        weights = [(1 - alpha) * alpha ** (t - k) for k in range(1, t + 1)]
        mean = sum(w * float(x.mean()) for w, x in zip(weights, frames, strict=False))
        std = sum(w * float(x.std()) for w, x in zip(weights, frames, strict=False))
        expected = (image - mean / (1 - alpha**t)) / (std / (1 - alpha**t) + 1e-8)
        result = normalizer(image.reshape(-1))
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


def test_the_reference_batch_has_frames_of_random_play_by_its_seed():
    frames, again, other = (
        gather_frames(make_env(describe_env("PongDeterministic-v4")), seed) for seed in (3, 3, 4)
    )
    assert frames.shape == (128, 1, 42, 42)
    assert np.array_equal(frames, again)
    assert not np.array_equal(frames, other)
    assert len({frame.tobytes() for frame in frames}) == 128
