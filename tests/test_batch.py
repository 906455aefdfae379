import pytest

from es.batch import put_together
from es.rollout import Result

RESULTS = [Result(i, value, 10 * i) for i, value in enumerate([1.0, 3.0, 4.0, 8.0, 5.0, 6.0])]


def test_one_episode_for_each_perturbation():
    batch = put_together(RESULTS, 1)
    assert batch.returns.tolist() == batch.fitness.tolist() == [1, 3, 4, 8, 5]
    assert batch.lengths == [0, 10, 20, 30, 40]
    assert batch.unperturbed == 6


def test_the_mean_of_several_episodes():
    batch = put_together(RESULTS, 2)
    assert batch.returns.tolist() == [2, 6]
    assert batch.lengths == [0, 10, 20, 30]
    assert batch.unperturbed == 5.5


def test_a_shift_of_rewards_counts_every_step_and_leaves_the_returns_alone():
    batch = put_together(RESULTS, 2, reward_shift=0.1)
    assert batch.returns.tolist() == [2, 6]
    assert batch.fitness.tolist() == pytest.approx([(1 + 2) / 2, (2 + 5) / 2])
    assert batch.unperturbed == 5.5
