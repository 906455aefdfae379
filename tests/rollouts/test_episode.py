import random

import numpy as np
import pytest

from es.rollouts.episode import Episode, rollout
from tests.fakes import Counting, Summing


def played(env, parameter=2.0, seed=7, cap=100):
    actor = Summing()
    actor.bind(np.array([parameter], np.float32))
    return rollout(env, actor, seed, cap)


def test_an_episode_ends_with_the_environment_or_at_the_cap():
    assert played(Counting(length=5)) == Episode(10.007, 5)
    assert played(Counting(length=5), cap=3) == Episode(6.0, 3)


class Single(Counting):
    """Pays in single precision."""

    def reward(self, action, over):
        return np.float32(0.1)


def test_returns_are_summed_in_double_precision():
    total = played(Single(length=10_000), cap=10_000).episode_return
    assert total == pytest.approx(10_000 * float(np.float32(0.1)), rel=1e-12)


class Careless(Counting):
    """Draws from the generators that all code shares."""

    def reward(self, action, over):
        return random.random() + np.random.random()


def test_what_an_environment_draws_from_shared_generators_depends_on_the_seed_alone():
    first, again, other = (played(Careless(), seed=seed) for seed in (7, 7, 8))
    assert first == again != other
