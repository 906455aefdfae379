"""Observations as vectors or images, and descriptions of actions."""

import numpy as np
import pytest
from gymnasium import spaces, wrappers

from es.environments.images import ImageObservation
from es.environments.spaces import as_network_sees, describe_actions, is_image, unbatch
from es.errors import UsageError
from tests.strange import Strange

BOX, NUMBER = spaces.Box(-1, 1, (2,)), spaces.Discrete(2)


def images(*shape):
    return spaces.Box(0, 255, shape, np.uint8)


PICTURE = images(60, 80, 3)


def flat(space):
    """Return a first observation as the network sees it, and as it is."""
    env = as_network_sees(Strange(space), "Some-v0")
    vector = np.asarray(env.reset(seed=1)[0])
    assert env.observation_space.shape == vector.shape
    space.seed(1)
    return vector.tolist(), space.sample()


def test_discrete_observations_are_one_hot():
    vector, number = flat(spaces.Discrete(5, start=3))
    assert vector == [1.0 if 3 + i == number else 0.0 for i in range(5)]
    vector, numbers = flat(spaces.MultiDiscrete([2, 3]))
    assert vector == [*np.eye(2)[numbers[0]], *np.eye(3)[numbers[1]]]


def test_dicts_tuples_and_boxes_of_any_shape_are_flattened():
    box = spaces.Box(-1, 1, (2, 2), np.float64)
    vector, parts = flat(spaces.Dict(a=box, b=spaces.Tuple([spaces.Discrete(2), box])))
    expected = [*parts["a"].reshape(-1), *np.eye(2)[parts["b"][0]], *parts["b"][1].reshape(-1)]
    assert vector == pytest.approx(expected)
    vector, numbers = flat(spaces.Box(-1, 1, (2, 3)))
    assert vector == numbers.reshape(-1).tolist()
    env = Strange(BOX)
    assert as_network_sees(env, "Some-v0") is env


def test_the_only_entry_of_a_dict_is_the_observation():
    env = Strange(spaces.Dict(picture=PICTURE, numbers=BOX))
    alone = as_network_sees(wrappers.FilterObservation(env, ["picture"]), "Some-v0")
    assert isinstance(alone, ImageObservation)
    assert alone.reset(seed=1)[0].shape == (1, 42, 42)
    assert len(flat(spaces.Dict(a=spaces.Discrete(3)))[0]) == 3


def test_a_custom_network_sees_arrays_in_their_shape_and_dicts_as_they_are():
    for kept in (spaces.Box(-1, 1, (2, 3)), spaces.Dict(a=BOX, b=NUMBER, picture=PICTURE)):
        env = Strange(kept)
        assert as_network_sees(env, "Some-v0", keeps_shape=True) is env
    for space, shape in ((NUMBER, (2,)), (PICTURE, (1, 42, 42))):
        seen = as_network_sees(Strange(space), "Some-v0", keeps_shape=True)
        assert seen.observation_space.shape == shape


@pytest.mark.parametrize(
    ("space", "words"),
    [
        (spaces.Text(5), "Text is not supported: make a Box of it with a wrapper"),
        (spaces.Sequence(NUMBER), "Sequence is not supported"),
        (spaces.Tuple([NUMBER, spaces.Text(5)]), "Text is not supported"),
        (
            spaces.Dict(a=NUMBER, b=spaces.Text(5)),
            "--env-wrapper gymnasium.wrappers:FilterObservation \"filter_keys=['a']\", or make",
        ),
        (spaces.Dict(a=BOX, b=spaces.Tuple([PICTURE])), "an image must be alone"),
        (spaces.Dict(a=BOX, p=PICTURE), "FilterObservation \"filter_keys=['p']\", or make"),
        (images(4, 96, 96, 3), "with at most 4 channels"),
    ],
)
def test_observations_that_the_networks_cannot_see_are_errors(space, words):
    with pytest.raises(UsageError, match="--env-name Some-v0: its observations are") as refused:
        as_network_sees(Strange(space), "Some-v0")
    assert words in str(refused.value)
    assert str(refused.value).endswith("(--env-wrapper my_module:my_wrapper)")


def test_images_are_bytes_or_bounded_numbers_and_not_too_small():
    for shape in ((60, 80), (60, 80, 1), (60, 80, 3), (60, 80, 4), (3, 60, 80), (4, 84, 84)):
        assert is_image(images(*shape))
    assert is_image(spaces.Box(0, 1, (60, 80, 3)))
    assert is_image(spaces.Box(0, 255, (3, 60, 80), np.float64))
    for space in (
        images(128), images(60, 80, 9), images(0, 84, 84), images(60, 60, 60, 3),
        images(7, 7, 3), images(25, 25, 3), images(3, 21, 79), images(21, 79),  # grids of codes
        spaces.Box(0, 1, (60, 80)), spaces.Box(-1, 1, (60, 80, 3)), spaces.Box(0, 1, (60, 80, 9)),
        spaces.Box(0, 1, (8, 8, 3)), spaces.Box(0, 1, (60, 80, 3), np.int8),
    ):  # fmt: skip
        assert not is_image(space)


def test_a_batch_is_told_from_a_single_observation():
    space = spaces.Dict(a=BOX, b=spaces.Tuple([NUMBER, BOX]))
    single = {"a": np.zeros(2), "b": (1, np.ones(2))}
    assert unbatch(space, single) is None
    batch = {"a": np.zeros((3, 2)), "b": (np.array([0, 1, 0]), np.ones((3, 2)))}
    found = unbatch(space, batch)
    assert found is not None
    assert [observation["b"][0] for observation in found] == [0, 1, 0]
    assert unbatch(NUMBER, 1) is None
    assert unbatch(NUMBER, np.array([1, 0])) == [1, 0]


@pytest.mark.parametrize(
    ("space", "described"),
    [
        (spaces.Discrete(3, start=2), {"kind": "discrete", "n": 3, "start": 2}),
        (
            spaces.MultiDiscrete(np.array([[2, 3], [4, 5]])),
            {
                "kind": "multi-discrete", "counts": [2, 3, 4, 5], "start": [0] * 4,
                "shape": [2, 2], "dtype": "int64",
            },
        ),
        (spaces.MultiBinary((2, 3)), {"kind": "multi-binary", "shape": [2, 3]}),
        (
            spaces.Box(np.array([-1.0, 0.0]), np.array([1.0, 5.0]), dtype=np.float64),
            {
                "kind": "box", "low": [-1, 0], "high": [1, 5], "shape": [2], "dtype": "float64",
                "bins": None, "noise": 0.0, "squash": "tanh",
            },
        ),
    ],
)  # fmt: skip
def test_action_spaces_are_described(space, described):
    assert describe_actions(space, "") == described


@pytest.mark.parametrize(
    ("space", "words"),
    [
        (spaces.Box(-np.inf, np.inf, (2,)), "finite bounds"),
        (spaces.Dict(a=spaces.Discrete(2)), "must be Discrete, MultiDiscrete, MultiBinary or Box"),
    ],
)
def test_actions_that_make_no_sense_are_errors(space, words):
    words = f"its actions are .*{words}.* a wrapper of your own"
    with pytest.raises(UsageError, match=f"--env-name Some-v0: {words}"):
        describe_actions(space, "Some-v0")
