from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces, wrappers

from es.environments.images import ImageView, PreprocessImage
from es.environments.spaces import as_vector, describe_actions, is_image, take_picture
from es.errors import UsageError


class Showing(gymnasium.Env):
    """Shows samples of a space."""

    def __init__(self, space):
        self.observation_space, self.action_space = space, spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, False, False, {}


def flat(space, seed=1):
    """A first observation as the policy sees it, and as it is."""
    env = as_vector(Showing(space), "Some-v0")
    observation = np.asarray(env.reset(seed=seed)[0])
    assert env.observation_space.shape == observation.shape
    space.seed(seed)
    return observation.tolist(), space.sample()


def test_discrete_observations_are_one_hot():
    ours, number = flat(spaces.Discrete(5, start=3))
    assert ours == [1.0 if 3 + i == number else 0.0 for i in range(5)]
    env = as_vector(Showing(spaces.Discrete(5, start=3)), "Some-v0")
    first = env.reset(seed=1)[0]
    assert env.observation_space.contains(first)
    assert first.dtype == np.float32  # which kernels take as it is
    before = first.tolist()
    for _ in range(5):
        env.step(0)
    assert first.tolist() == before  # each is an array of its own
    ours, numbers = flat(spaces.MultiDiscrete([2, 3]))
    assert ours == [*np.eye(2)[numbers[0]], *np.eye(3)[numbers[1]]]


def test_dict_and_tuple_observations_are_flattened():
    box = spaces.Box(-1, 1, (2, 2), np.float64)
    ours, parts = flat(spaces.Dict(a=box, b=spaces.Tuple([spaces.Discrete(2), box])))
    expected = [*parts["a"].reshape(-1), *np.eye(2)[parts["b"][0]], *parts["b"][1].reshape(-1)]
    assert ours == pytest.approx(expected)


def test_the_texts_of_dicts_are_left_out_and_named():
    """MiniGrid's is a space of its own, whose elements are texts."""
    own: spaces.Space = spaces.Space(dtype=str)
    inner = spaces.Dict(c=spaces.Discrete(2), d=own)
    env: Any = as_vector(Showing(spaces.Dict(a=spaces.Text(5), b=BOX, e=inner)), "Some-v0")
    seen = {"a": "some", "b": np.array([0.5, -0.5], np.float32), "e": {"c": 1, "d": "other"}}
    assert env.observation_space.shape == (4,)
    assert env.observation(seen).tolist() == [0.5, -0.5, 0, 1]
    assert env.es_unseen == ["a", "e.d"]


def test_the_only_picture_of_a_dict_is_the_observation():
    """As FilterObservation leaves it: ViZDoom's lies beside numbers."""
    env = Showing(spaces.Dict(picture=PICTURE, numbers=BOX, words=spaces.Text(5)))
    assert take_picture(env) is env
    alone = take_picture(wrappers.FilterObservation(env, ["picture", "words"]))
    assert is_image(alone.observation_space)
    assert alone.reset(seed=1)[0] in PICTURE


def test_boxes_of_any_shape_are_flattened():
    ours, numbers = flat(spaces.Box(-1, 1, (2, 3)))
    assert ours == numbers.reshape(-1).tolist()
    assert len(flat(spaces.Box(-1, 1, ()))[0]) == 1
    vector = Showing(spaces.Box(-1, 1, (3,)))
    assert as_vector(vector, "Some-v0") is vector


BOX, NUMBER, PICTURE = (
    spaces.Box(-1, 1, (2,)), spaces.Discrete(2), spaces.Box(0, 255, (60, 80, 3), np.uint8)
)  # fmt: skip


@pytest.mark.parametrize(
    ("space", "words"),
    [
        (spaces.Text(5), "Text cannot be seen: make a Box of it with a wrapper"),
        (spaces.Sequence(NUMBER), "Sequence cannot be seen"),
        (spaces.Graph(NUMBER, None), "Graph cannot be seen"),
        (spaces.Tuple([NUMBER, spaces.Text(5)]), "Text cannot be seen: leave it out with"),
        (spaces.Dict(a=spaces.Text(5)), "a vector of 0 numbers"),
        (
            spaces.Dict(a=NUMBER, b=spaces.Sequence(NUMBER)),
            "--env-wrapper gymnasium.wrappers:FilterObservation filter_keys=[...]",
        ),
        (spaces.Dict(a=BOX, b=spaces.Tuple([PICTURE])), "a picture is seen alone"),
        (spaces.Tuple([spaces.Box(0, 1, (3, 60, 80))]), "FilterObservation filter_keys"),
        (spaces.Box(0, 255, (4, 96, 96, 3), np.uint8), "with 4 channels at most: make such a one"),
        (spaces.Box(0, 255, (84, 84, 12), np.uint8), "with 4 channels at most: make such a one"),
        (spaces.Box(-1, 1, (0,)), "a vector of 0 numbers"),
        (spaces.Dict({}), "a vector of 0 numbers"),
        (spaces.Tuple(()), "a vector of 0 numbers"),
        (spaces.Discrete(2**40), "a vector of 1099511627776 numbers, and 1 to 1048576 are"),
        (spaces.MultiDiscrete([2**31 - 1] * 3), "a vector of 6442450941 numbers"),
    ],
)
def test_observations_that_the_networks_cannot_see_are_errors(space, words):
    with pytest.raises(UsageError, match="--env-name Some-v0: its observations are") as refused:
        as_vector(Showing(space), "Some-v0")
    assert words in str(refused.value)
    assert str(refused.value).endswith("(--env-wrapper my_module:my_wrapper)")


def test_the_end_of_an_error_is_not_cut_off():
    many = {f"part {number}": BOX for number in range(99)}
    with pytest.raises(UsageError, match=r"part 0.* \.\.\.; Graph cannot be seen.*my_wrapper\)$"):
        as_vector(Showing(spaces.Dict(many | {"g": spaces.Graph(NUMBER, None)})), "Some-v0")


def test_the_wrappers_that_errors_name_help():
    parts = Showing(spaces.Dict(picture=PICTURE, words=spaces.Text(5), numbers=BOX))
    numbers = as_vector(wrappers.FilterObservation(parts, ["numbers"]), "Some-v0")
    assert numbers.observation_space.shape == (2,)
    picture = wrappers.TransformObservation(parts, lambda parts: parts["picture"], PICTURE)
    assert is_image(picture.observation_space)
    for actions in (
        spaces.Box(-np.inf, np.inf, (2,)), spaces.Dict(a=BOX)
    ):  # fmt: skip
        env = Showing(BOX)
        env.action_space = actions
        described = describe_actions(wrappers.TransformAction(env, dict, BOX).action_space, "")
        assert described["kind"] == "box"


def images(*shape):
    return spaces.Box(0, 255, shape, np.uint8)


def test_images_are_bytes_of_two_or_three_dimensions():
    for shape in ((60, 80), (60, 80, 1), (60, 80, 3), (60, 80, 4), (3, 60, 80), (4, 84, 84)):
        assert is_image(images(*shape))
    for space in (images(128), images(60, 80, 9), images(0, 84, 84), images(60, 60, 60, 3)):
        assert not is_image(space)


def test_bytes_too_small_for_a_picture_are_seen_as_they_are():
    """MiniGrid's codes, and grids of other games."""
    for shape in ((7, 7, 3), (25, 25, 3), (3, 21, 79), (21, 79)):
        assert not is_image(images(*shape))
        ours, codes = flat(images(*shape))
        assert ours == codes.reshape(-1).tolist()


def test_images_may_be_numbers_with_the_bounds_of_one():
    assert is_image(spaces.Box(0, 1, (60, 80, 3)))
    assert is_image(spaces.Box(0, 255, (3, 60, 80), np.float64))
    for space in (
        spaces.Box(0, 1, (60, 80)), spaces.Box(-1, 1, (60, 80, 3)), spaces.Box(0, 1, (60, 80, 9)),
        spaces.Box(0, 1, (8, 8, 3)), spaces.Box(0, 1, (60, 80, 3), np.int8),
    ):  # fmt: skip
        assert not is_image(space)


def test_images_of_other_shapes_are_seen_alike():
    """A bright upper half, in every order of its dimensions and as numbers."""
    upright = np.zeros((60, 80, 3), np.uint8)
    upright[:30] = 200
    expected = None
    for frame in (
        upright, upright[..., 0], np.moveaxis(upright, 2, 0), upright[..., [0, 1, 2, 0]],
        (upright / 255).astype(np.float32), upright.astype(np.float64),
    ):  # fmt: skip
        high = 255 if frame.max() > 1 else 1
        space = spaces.Box(0, high, frame.shape, frame.dtype.type)
        showing = Showing(space)
        env = PreprocessImage(showing, ImageView(showing))
        env._view.reset()
        seen = env.observation(frame)
        assert seen.shape == (1, 42, 42)
        assert seen[0, :20].min() > seen[0, 22:].max()
        expected = seen.copy() if expected is None else expected
        np.testing.assert_allclose(seen, expected, atol=0.05)


def test_an_environment_without_a_space_is_one_line(program):
    status, out, err = program("--env-name", "tests.strange:Forgetful-v0", "--workers", 0)
    assert (status, out) == (2, "")
    assert err.startswith("error: --env-name tests.strange:Forgetful-v0: cannot be made (Attri")
