"""Images as the networks see them."""

import cv2
import numpy as np
import pytest
from gymnasium import spaces

from es.environments.images import ImageNormalizer, ImageView, PreprocessImage, preprocess
from es.envs import describe_env, make_env
from tests.environments.test_spaces import Showing


def test_shrinking_against_the_definition():
    """Noise: every pixel differs from its neighbours."""
    frame = np.random.default_rng(0).integers(0, 256, (160, 160, 3), dtype=np.uint8)
    small = cv2.resize(cv2.resize(frame, (80, 80)), (42, 42)).astype(np.float64)
    result = preprocess(frame)
    assert result.shape == (1, 42, 42)
    assert result.dtype == np.float32
    np.testing.assert_allclose(result[0], small.mean(axis=2) / 255, atol=1e-6)


@pytest.mark.parametrize("kind", ["float16", "float64", "int64", "uint16", "bool", "list"])
def test_a_picture_of_another_type_than_its_space_is_seen_as_its_numbers(kind):
    """Of which whole numbers are bytes, and floats are not rounded to these."""
    env = Showing(spaces.Box(0, 255, (40, 50, 3), np.uint8))
    frame = np.random.default_rng(0).integers(0, 2 if kind == "bool" else 256, (40, 50, 3))
    given = frame.tolist() if kind == "list" else frame.astype(kind)
    views = [ImageView(env) for _ in range(2)]
    for view in views:
        view.reset()
    seen, expected = views[0](given), views[1](frame.astype(np.uint8))
    np.testing.assert_allclose(seen, expected, atol=0.1 if "float" in kind else 0)


def test_images_that_are_not_atari_screens_are_seen_whole():
    frame = np.zeros((96, 96, 3), np.uint8)
    frame[:10] = 255
    seen = preprocess(frame)[0]
    assert seen[0].mean() == pytest.approx(1, abs=0.01)
    assert seen[-1].mean() == 0
    assert preprocess(frame[..., 0]).shape == (1, 42, 42)


def test_the_normaliser_against_its_formula():
    """Exponential averages of mean and deviation, each divided by 1 - alpha^t."""
    normalizer, alpha = ImageNormalizer(), 0.9999
    normalizer.reset()
    images = np.random.default_rng(0).random((30, 1, 42, 42)).astype(np.float32)
    for t, image in enumerate(images, start=1):
        weights = [(1 - alpha) * alpha ** (t - k) for k in range(1, t + 1)]
        mean = sum(w * float(x.mean()) for w, x in zip(weights, images, strict=False))
        std = sum(w * float(x.std()) for w, x in zip(weights, images, strict=False))
        expected = (image - mean / (1 - alpha**t)) / (std / (1 - alpha**t) + 1e-8)
        result = normalizer(image.reshape(-1))
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


def test_other_images_start_with_a_fresh_normaliser_too():
    env = make_env(describe_env("CarRacing-v3", ["continuous=False"]))
    assert isinstance(env, PreprocessImage)
    first = env.reset(seed=1)[0].copy()
    env.step(3)
    assert np.array_equal(env.reset(seed=1)[0], first)
    env.close()
