"""The reference batch of virtual batch normalisation."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

import gymnasium
import numpy as np

from es.envs import make_env
from es.noise import FloatArray, Stream, derive_seeds, seed_shared_generators

FRAMES = 128
KEPT = 0.125  # of the frames seen: neighbours are nearly alike
MAX_STEPS = 1000  # of an episode, so that an endless one does not fill the batch alone


def gather_frames(env: Mapping[str, Any], seed: int) -> FloatArray:
    """Frames of an image environment, as a network sees them, in random play by `seed`.

    The result: (128, 1, 42, 42) float32.
    """
    generator = np.random.default_rng(seed)
    with closing(make_env(env)) as played:
        seen = _random_play(played, seed)
        kept = (frame.copy() for frame in seen if generator.random() < KEPT)
        return np.stack(list(itertools.islice(kept, FRAMES)))


def _random_play(env: gymnasium.Env, seed: int) -> Iterator[FloatArray]:
    env.action_space.seed(seed)
    for episode in itertools.count():
        (episode_seed,) = derive_seeds(seed, episode, Stream.REFERENCE, 1)
        seed_shared_generators(episode_seed)
        env.reset(seed=episode_seed)
        for _ in range(MAX_STEPS):
            observation, _, terminated, truncated, _ = env.step(env.action_space.sample())
            yield observation
            if terminated or truncated:
                break
