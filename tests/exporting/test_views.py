"""What networks see, as torch modules: the same as `View`, which training is held to."""

import gymnasium
import numpy as np
import pytest
import torch
from es.environments.observations import View
from es.exporting.shaped import make_shaped_view
from gymnasium import spaces
from torch.utils._pytree import tree_map

from es.environments.spaces import take_picture
from es.envs import describe_env, make_bare_env
from es.exporting.views import make_view
from tests.strange import SPACES


def seen(view, module, observations):
    """What both show of an episode's observations."""
    view.reset()
    state = module.initial
    for observation in observations:
        tensors = tree_map(lambda part: torch.from_numpy(np.array(part)), observation)
        image, state = module(tensors, state)
        assert image.dtype == torch.float32
        yield np.array(view(observation), np.float32), image.numpy()


class Shows(gymnasium.Env):
    def __init__(self, space):
        self.observation_space, self.action_space = space, spaces.Discrete(2)


VECTORS: dict[str, spaces.Space] = {
    name: SPACES[name][0] for name in ("Parts", "Digits", "Doubles")
} | {
    "Discrete": spaces.Discrete(5, start=3),
    "MultiDiscrete": spaces.MultiDiscrete(
        np.array([[2, 3], [4, 5]]), start=np.array([[1, 0], [0, 7]])
    ),
    "Grid": spaces.Box(0, 255, (7, 7, 3), np.uint8),
}
IMAGES: dict[str, spaces.Space] = {
    "uint8": spaces.Box(0, 255, (96, 96, 3), np.uint8),
    "gray": spaces.Box(0, 255, (160, 160), np.uint8),
    "small": spaces.Box(0, 255, (28, 30, 1), np.uint8),
    "large": spaces.Box(0, 255, (400, 601, 3), np.uint8),
    "channels first": spaces.Box(0, 255, (3, 50, 60), np.uint8),
    "to 1": spaces.Box(0, 1, (64, 70, 3), np.float32),
    "to 255": spaces.Box(0, 255, (3, 84, 84), np.float64),
    "half precision": spaces.Box(0, 1, (40, 50, 4), np.float16),
    "two frames": spaces.Box(0, 255, (2, 36, 44), np.uint8),
}


@pytest.mark.parametrize("name", VECTORS)
def test_vectors_are_flattened_as_in_training(name):
    space = VECTORS[name]
    space.seed(0)
    env = Shows(space)
    for expected, found in seen(View(env), make_view(env), [space.sample() for _ in range(5)]):
        assert found.shape == expected.shape
        assert np.abs(found - expected).max() < 1e-6


def test_texts_are_left_out_and_a_lone_picture_is_the_observation():
    words, numbers = spaces.Text(9), spaces.Box(-1, 1, (2,))
    mixed = spaces.Dict(mission=words, inner=spaces.Dict(also=words, numbers=numbers))
    mixed.seed(0)
    observation = mixed.sample()
    found, _ = make_view(Shows(mixed))(
        tree_map(torch.from_numpy, {"inner": {"numbers": observation["inner"]["numbers"]}}), None
    )
    assert np.array_equal(found, View(Shows(mixed))(observation))
    picture = spaces.Dict(mission=words, screen=IMAGES["uint8"])
    picture.seed(0)
    env, observation = Shows(picture), picture.sample()
    view, module = View(env), make_view(take_picture(env))
    view.reset()
    found, _ = module(torch.from_numpy(observation["screen"]), module.initial)
    assert np.abs(found.numpy() - view(observation)).max() < 1e-5


def test_vectors_are_normalised_in_double_precision():
    space = spaces.Box(-1e9, 1e9, (3,), np.float64)
    mean, factor = np.array([1e8, 0, -3.0]), np.array([4.0, 100.0, 0.5])
    view = make_view(Shows(space), np.stack([mean, factor]), clip=5)
    observation = np.array([1e8 + 1 / 3, 1.0, -3.5])
    found, _ = view(torch.from_numpy(observation), None)
    expected = np.clip((observation - mean) * factor, -5, 5).astype(np.float32)
    assert np.array_equal(found.numpy(), expected)


def test_a_network_of_ones_own_sees_arrays_in_their_shape_and_entries_apart():
    space = SPACES["Scene"][0]
    space.seed(0)
    env, statistics = Shows(space), np.random.default_rng(0).normal(size=(2, 34))
    view, module = View(env, shaped=True), make_shaped_view(env, statistics, 5)
    view.reset()
    state = None
    for _ in range(3):
        observation = space.sample()
        expected = view(observation)
        del observation["mission"]
        found, state = module(tree_map(lambda x: torch.from_numpy(np.array(x)), observation), state)
        assert found.keys() == expected.keys()
        start = 0
        for key, tensor in found.items():
            wanted = np.asarray(expected[key])
            assert tensor.shape == wanted.shape
            if key == "camera":
                assert np.abs(tensor.numpy() - wanted).max() < 1e-4
                continue
            mean, factor = statistics[:, start : start + wanted.size]
            start += wanted.size
            normalized = ((wanted.reshape(-1) - mean) * factor).clip(-5, 5)
            assert np.abs(tensor.numpy().reshape(-1) - normalized).max() < 1e-5
    for space in (spaces.Box(-1, 1, (2, 3)), spaces.Discrete(3), IMAGES["uint8"]):
        space.seed(0)
        view, module = View(Shows(space), shaped=True), make_shaped_view(Shows(space))
        view.reset()
        observation = space.sample()
        found, _ = module(torch.from_numpy(np.array(observation)), module.initial)
        assert np.abs(found.numpy() - view(observation)).max() < 1e-4


def test_the_statistics_of_entries_are_in_the_order_of_training():
    """Which sorts them, where the environment's own space does not."""
    space = spaces.Dict([("z", spaces.Box(-1, 1, (2,))), ("a", spaces.Box(-1, 1, (3,)))])
    assert [*space] == ["z", "a"]
    trained = View(Shows(space), shaped=True)(observation := space.sample())
    module = make_shaped_view(Shows(space), np.stack([np.arange(5.0), np.ones(5)]), 5)
    found, _ = module({key: torch.from_numpy(part) for key, part in observation.items()}, None)
    numbers = np.concatenate([np.ravel(trained[key]) for key in sorted(trained)])
    shown = np.concatenate([found[key].numpy() for key in sorted(found)])
    assert shown == pytest.approx((numbers - np.arange(5)).clip(-5, 5))


@pytest.mark.parametrize("name", IMAGES)
def test_images_are_shrunk_as_in_training(name):
    """By OpenCV, which rounds bytes in its own way; averages go on over the episode."""
    space = IMAGES[name]
    space.seed(0)
    env = Shows(space)
    images = [space.sample() for _ in range(4)]
    for expected, found in seen(View(env), make_view(env), images):
        assert np.abs(found - expected).max() < 1e-4  # of about 10 where one byte is another


@pytest.mark.parametrize("kwargs", [[], ["obs_type=grayscale"], ["continuous=True"]])
def test_atari_screens_are_seen_as_in_training(kwargs):
    description = describe_env("ALE/Boxing-v5", kwargs)
    bare = make_bare_env(description)
    env = gymnasium.make(description["id"], disable_env_checker=True, **description["kwargs"])
    env.action_space.seed(0)
    screens = [env.reset(seed=3)[0]]
    screens += [env.step(env.action_space.sample())[0] for _ in range(30)]
    env.close()
    for expected, found in seen(View(bare), make_view(bare), screens):
        assert np.abs(found - expected).max() < 1e-4
