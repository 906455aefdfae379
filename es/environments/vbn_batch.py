"""The batch of frames from which virtual batch normalisation takes its statistics."""

import copy
import itertools
from collections.abc import Iterator

import gymnasium
import numpy as np

from es.algorithm.noise import FloatArray, Stream, derive_seeds, seed_shared_generators

FRAMES = 128
KEPT = 0.125  # of the frames seen: neighbours are nearly alike
MAX_STEPS = 1000  # of an episode, so that an endless one does not fill the batch alone


def gather_frames(env: gymnasium.Env, seed: int) -> FloatArray:
    """Return frames of an image environment in random play by `seed`: (128, 1, 42, 42) float32.

    env: a new one, whose observations are those that the network sees.
    """
    generator = np.random.default_rng(seed)
    kept = (frame.copy() for frame in _random_play(env, seed) if generator.random() < KEPT)
    return np.stack(list(itertools.islice(kept, FRAMES)))


def _random_play(env: gymnasium.Env, seed: int) -> Iterator[FloatArray]:
    actions = copy.deepcopy(env.action_space)  # which no reset seeds
    actions.seed(seed)
    for episode in itertools.count():
        (episode_seed,) = derive_seeds(seed, episode, Stream.VBN_BATCH, 1)
        seed_shared_generators(episode_seed)
        env.reset(seed=episode_seed)
        for _ in range(MAX_STEPS):
            observation, _, terminated, truncated, _ = env.step(actions.sample())
            yield observation
            if terminated or truncated:
                break
