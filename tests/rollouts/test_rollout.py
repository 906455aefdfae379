import random
from itertools import islice

import numpy as np
import pytest
from es.rollouts.rollout import (
    UNPERTURBED,
    Episode,
    Snapshot,
    Task,
    evaluation_seeds,
    evaluation_tasks,
    rollout,
    training_tasks,
)

from es.noise import derive_seeds, draw
from es.rollouts.player import Player
from tests.fakes import Counting, Summing, recipe


def test_an_episode_ends_with_the_environment_or_at_the_cap():
    actor = Summing()
    actor.bind(np.array([2.0], np.float32))
    assert rollout(Counting(length=5), actor, seed=7, cap=100) == Episode(10.007, 5)
    assert rollout(Counting(length=5), actor, seed=7, cap=3) == Episode(6.0, 3)


def test_noise_that_is_kept_for_a_twin_changes_no_result():
    snapshot, cap = Snapshot(np.linspace(0, 1, 10, dtype=np.float32), 0.1), 9
    members = (3, 1), (3, -1), UNPERTURBED, (3, 1), (4, 1), (5, -1), (4, -1)
    tasks = [Task(index, *member, 7, cap) for index, member in enumerate(members)]
    player = Player(recipe())
    for task in tasks:
        assert player.play(snapshot, task) == Player(recipe()).play(snapshot, task)


class Single(Counting):
    """Pays in single precision."""

    def reward(self, action, over):
        return np.float32(0.1)


def test_returns_are_summed_in_double_precision():
    actor = Summing()
    actor.bind(np.zeros(1, np.float32))
    episode = rollout(Single(length=10_000), actor, seed=0, cap=10_000)
    assert episode.episode_return == pytest.approx(10_000 * float(np.float32(0.1)), rel=1e-12)


def test_an_episode_is_cut_off_after_the_environments_own_number_of_steps():
    snapshot, task = Snapshot(np.zeros(3, np.float32), 0.1), Task(0, 0, 0, 0, 100)
    for max_steps, steps in ((3, 3), (7, 5), (None, 5)):
        player = Player(recipe(length=5)._replace(max_steps=max_steps))
        assert player.play(snapshot, task).steps == steps
    player = Player(recipe(length=5)._replace(max_steps=3))
    assert player.play(snapshot, task._replace(cap=2)).steps == 2


def test_a_task_is_played_with_its_perturbation_of_the_snapshot():
    theta = np.linspace(0, 1, 20, dtype=np.float32)
    noise = draw(99, np.empty_like(theta))
    player = Player(recipe(length=1))
    for sign in (1, -1, 0):
        result = player.play(Snapshot(theta, 0.5), Task(4, 99, sign, 0, 10))
        expected = float((theta + sign * 0.5 * noise).sum())
        assert (result.index, result.steps) == (4, 1)
        assert result.episode_return == pytest.approx(expected, rel=1e-5)


def test_pairs_share_an_episode_and_the_unperturbed_comes_last():
    members = [(5, 1), (5, -1), (6, 1), (6, -1)]
    tasks = training_tasks(seed=1, update=2, members=[*members, UNPERTURBED], cap=50)
    assert [task.index for task in tasks] == [0, 1, 2, 3, 4]
    assert [(task.noise_seed, task.sign) for task in tasks] == [*members, (0, 0)]
    episodes = [task.episode_seed for task in tasks]
    assert episodes[0] == episodes[1]
    assert episodes[2] == episodes[3]
    assert len(set(episodes)) == 3
    assert {task.cap for task in tasks} == {50}
    later = training_tasks(seed=1, update=3, members=[*members, UNPERTURBED], cap=50)
    assert not set(episodes) & {task.episode_seed for task in later}


@pytest.mark.parametrize(
    ("seeding", "who"),
    [("pair", [0, 0, 1, 1, 2]), ("update", [0] * 5), ("independent", [0, 1, 2, 3, 4])],
)
def test_several_episodes_and_who_shares_them(seeding, who):
    members = [(5, 1), (5, -1), (6, 1), (6, -1)]
    tasks = training_tasks(1, 2, [*members, UNPERTURBED], 50, episodes=3, seeding=seeding)
    assert [task.index for task in tasks] == list(range(15))
    assert [task.noise_seed for task in tasks] == [5] * 6 + [6] * 6 + [0] * 3
    assert [task.sign for task in tasks] == [1, 1, 1, -1, -1, -1] * 2 + [0] * 3
    played = [tuple(task.episode_seed for task in tasks[i : i + 3]) for i in range(0, 15, 3)]
    assert all(len(set(episodes)) == 3 for episodes in played)
    for i, first in enumerate(played):
        for j, second in enumerate(played):
            assert (first == second) == (who[i] == who[j])
            assert bool(set(first) & set(second)) == (who[i] == who[j])


def test_perturbations_without_a_mirror_image_play_episodes_of_their_own():
    tasks = training_tasks(1, 2, [(5, 1), (6, 1), (7, 1), UNPERTURBED], 50)
    assert len({task.episode_seed for task in tasks}) == 4


@pytest.mark.parametrize("seeding", ["pair", "update", "independent"])
def test_further_members_leave_the_tasks_before_them_as_they_are(seeding):
    first = [(5, 1), (5, -1), UNPERTURBED]
    tasks = training_tasks(1, 2, first, 50, episodes=2, seeding=seeding)
    grown = training_tasks(1, 2, [*first, (6, 1), (6, -1)], 50, episodes=2, seeding=seeding)
    assert grown[: len(tasks)] == tasks
    shared = {"pair": 6, "update": 2, "independent": 10}[seeding]
    assert len({task.episode_seed for task in grown}) == shared


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
    theta, statistics = np.zeros(1000, np.float32), np.zeros((2, 3))
    snapshot = Snapshot(theta, 0.1, statistics)
    result = player.play(snapshot, Task(0, 9, 1, 77, 10))
    assert result.observed is not None
    assert result.observed.tolist() == np.ones((2, 3)).tolist()
    assert isinstance(player.actor, Listening)
    assert 400 < np.count_nonzero(player.actor.theta) < 600
    player.play(snapshot, Task(0, 0, 0, 77, 10))
    assert player.actor.heard == [statistics, (9, 77), statistics, None]


def test_clipped_rewards_are_added_up_beside_the_return():
    player = Player(recipe(length=4)._replace(reward_clip=(-1.0, 1.5)))
    theta = np.array([2.0], np.float32)
    for _ in range(2):  # the second time to see that an episode begins at nothing
        result = player.play(Snapshot(theta, 0.1), Task(0, 0, 0, 7, 10))
        assert result.episode_return == pytest.approx(8.007)
        assert result.clipped_return == 6.0
    unclipped = Player(recipe(length=4)).play(Snapshot(theta, 0.1), Task(0, 0, 0, 7, 10))
    assert unclipped.clipped_return is None


def test_evaluation_plays_the_unperturbed_parameters_in_other_episodes():
    tasks = evaluation_tasks(seed=1, update=2, episodes=20, cap=50)
    assert {task.sign for task in tasks} == {0}
    episodes = {task.episode_seed for task in tasks}
    assert len(episodes) == 20
    trained = training_tasks(seed=1, update=2, members=[(1, 1)] * 40, cap=50)
    assert not episodes & {task.episode_seed for task in trained}


class Careless(Counting):
    """Draws from the generators that all code shares."""

    def reward(self, action, over):
        return random.random() + np.random.random()


def test_what_an_environment_draws_from_shared_generators_depends_on_the_seed_alone():
    actor = Summing()
    actor.bind(np.array([2.0], np.float32))
    first, again, other = (rollout(Careless(), actor, seed, cap=100) for seed in (7, 7, 8))
    assert first == again != other


def test_the_seeds_of_an_evaluation_without_end_take_work_in_proportion_to_their_number(
    monkeypatch,
):
    tasks = evaluation_tasks(1, 2, 10_000, 9)
    derived = 0

    def count(*origin):
        nonlocal derived
        derived += origin[-1]
        return derive_seeds(*origin)

    monkeypatch.setattr("es.rollouts.rollout.derive_seeds", count)
    seeds = [*islice(evaluation_seeds(1, 2), 10_000)]
    assert seeds == [task.episode_seed for task in tasks]
    assert derived < 50_000
