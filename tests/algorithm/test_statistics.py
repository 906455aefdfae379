import numpy as np
import pytest

from es.algorithm.statistics import Normalizer
from es.errors import RunError


def merge(normalizer, episodes):
    """Merge the sums that an actor would have made of episodes' observations."""
    mean = normalizer.statistics()[0]
    deviations = [observations - mean for observations in episodes]
    sums = [np.stack([each.sum(axis=0), (each**2).sum(axis=0)]) for each in deviations]
    normalizer.merge(sums, [len(observations) for observations in episodes])


def test_statistics_are_those_of_everything_seen():
    """Far from 0, where the difference of mean square and squared mean would lose its digits."""
    rng = np.random.default_rng(0)
    seen = rng.normal(size=(3, 4, 50, 2)) * [1.0, 0.01] + [3.0, 1e6]
    normalizer = Normalizer(2)
    assert normalizer.statistics().tolist() == [[0, 0], [1, 1]]
    for update in seen:
        merge(normalizer, update)
    everything = seen.reshape(-1, 2)
    mean, factor = normalizer.statistics()
    assert normalizer.count == len(everything)
    np.testing.assert_allclose(mean, everything.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(factor[0], 1 / everything[:, 0].std(), rtol=1e-6)
    np.testing.assert_allclose(factor[1], 1 / everything[:, 1].std(), rtol=0.1)


@pytest.mark.parametrize("steps", range(10, 20))  # rounding makes some sums of squares negative
def test_what_never_changes_stays_finite(steps):
    normalizer = Normalizer(1)
    for _ in range(2):
        merge(normalizer, [np.full((steps, 1), 12345.678)])
        mean, factor = normalizer.statistics()
        assert mean == pytest.approx(12345.678)
        assert np.isfinite(factor).all()


def test_a_state_that_does_not_fit_is_refused():
    normalizer = Normalizer(2)
    with pytest.raises(ValueError, match="observations"):
        normalizer.load(Normalizer(3).state())


def test_deviations_have_a_floor():
    normalizer = Normalizer(2, least_std=0.1)
    merge(normalizer, [np.array([[1.0, 2.0], [1.02, 4.0]])])
    assert normalizer.statistics()[1] == pytest.approx([10.0, 1.0])


def test_observations_that_are_not_finite_end_the_run():
    normalizer = Normalizer(1)
    with pytest.raises(RunError, match="--obs-norm"):
        merge(normalizer, [np.array([[np.inf]])])


def test_an_episode_with_an_observation_that_is_not_finite_is_left_out():
    normalizer, without = Normalizer(2), Normalizer(2)
    good = [np.array([[1.0, 2.0], [3.0, 5.0]]), np.array([[7.0, 1.0]])]
    bad = np.array([[1.0, np.nan], [1.0, 1.0]])
    merge(without, good)
    merge(normalizer, [good[0], bad, good[1]])
    assert np.array_equal(normalizer.statistics(), without.statistics())
    assert normalizer.count == 3
