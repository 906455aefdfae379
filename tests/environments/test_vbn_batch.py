import numpy as np

from es.algorithm.noise import Stream, derive_seeds
from es.environments.vbn_batch import gather_frames
from es.envs import describe_env, make_env

PONG = describe_env("PongDeterministic-v4")


def test_the_reference_batch_is_that_of_its_seed():
    frames = gather_frames(make_env(PONG), 3)
    assert frames.shape == (128, 1, 42, 42)
    assert frames.dtype == np.float32
    assert np.array_equal(gather_frames(make_env(PONG), 3), frames)
    assert not np.array_equal(gather_frames(make_env(PONG), 4), frames)
    assert len({frame.tobytes() for frame in frames}) > 100


def test_frames_are_those_of_random_play_as_the_network_sees_them():
    env = make_env(PONG)
    env.action_space.seed(3)
    env.reset(seed=derive_seeds(3, 0, Stream.VBN_BATCH, 1)[0])
    seen: dict[bytes, int] = {}
    over = False
    while not over:
        observation, _, terminated, truncated, _ = env.step(env.action_space.sample())
        seen[observation.tobytes()] = len(seen)
        over = terminated or truncated
    frames = gather_frames(make_env(PONG), 3)
    places = [seen[frame.tobytes()] for frame in frames[:60]]
    assert places == sorted(places)
    assert places[-1] - places[0] > 200  # from far apart
