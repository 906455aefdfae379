import numpy as np
import pytest

from es.algorithm.noise import draw
from es.rollouts.player import Player
from es.rollouts.tasks import Snapshot, Task
from tests.fakes import SNAPSHOT, Summing, recipe

UNPERTURBED = Task(0, 0, 7, 100)


def test_a_task_is_played_with_its_perturbation_of_the_snapshot():
    theta = np.linspace(0, 1, 20, dtype=np.float32)
    noise = draw(99, np.empty_like(theta))
    player = Player(recipe(length=1))
    for sign in (1, -1, 0):
        result = player.play(Snapshot(theta, 0.5), Task(99, sign, 0, 10))
        expected = float((theta + sign * 0.5 * noise).sum())
        assert result.episode_return == pytest.approx(expected, rel=1e-5)
        assert result.steps == 1


def test_noise_that_is_kept_for_a_twin_changes_no_result():
    members = (3, 1), (3, -1), (0, 0), (3, 1), (4, 1), (5, -1), (4, -1)
    player = Player(recipe())
    for member in members:
        task = Task(*member, 7, 9)
        assert player.play(SNAPSHOT, task)[:3] == Player(recipe()).play(SNAPSHOT, task)[:3]


def test_an_episode_is_cut_off_after_the_environments_own_number_of_steps():
    for max_steps, cap, steps in ((3, 100, 3), (7, 100, 5), (None, 100, 5), (3, 2, 2)):
        player = Player(recipe(length=5)._replace(max_steps=max_steps))
        assert player.play(SNAPSHOT, UNPERTURBED._replace(cap=cap)).steps == steps


class Listening(Summing):
    """Notes what it is given."""

    def __init__(self):
        self.heard = []

    def bind(self, theta, statistics=None):
        super().bind(theta)
        self.heard.append(statistics)
        self.theta = theta.copy()

    def reset(self, seed=None, noise_seeds=None):
        self.heard.append(noise_seeds)

    def observed(self):
        return np.ones((2, 3))


def test_an_actor_gets_statistics_and_in_training_seeds_for_noise():
    player = Player(recipe(length=1)._replace(make_actor=Listening, param_fraction=0.5))
    statistics = np.zeros((2, 3))
    snapshot = Snapshot(np.zeros(1000, np.float32), 0.1, statistics)
    assert player.play(snapshot, Task(9, 1, 77, 10)).observed.tolist() == np.ones((2, 3)).tolist()
    assert isinstance(player.actor, Listening)
    assert 400 < np.count_nonzero(player.actor.theta) < 600
    player.play(snapshot, UNPERTURBED)
    assert player.actor.heard == [statistics, (9, 77), statistics, None]


def test_clipped_rewards_are_added_up_beside_the_return():
    snapshot = Snapshot(np.array([2.0], np.float32), 0.1)
    player = Player(recipe(length=4)._replace(reward_clip=(-1.0, 1.5)))
    for _ in range(2):  # the second time to see that an episode begins at nothing
        result = player.play(snapshot, UNPERTURBED)
        assert result.episode_return == pytest.approx(8.007)
        assert result.clipped_return == 6.0
    unclipped = Player(recipe(length=4)).play(snapshot, UNPERTURBED)
    assert unclipped.clipped_return == unclipped.episode_return
