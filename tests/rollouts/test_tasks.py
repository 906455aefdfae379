import numpy as np
import pytest

from es.rollouts.tasks import TASK, UNPERTURBED, ByValue, Task, each_task, training_tasks

MEMBERS = [(5, 1), (5, -1), (6, 1), (6, -1), UNPERTURBED]


def test_a_task_fills_a_part_of_a_page_and_tells_its_seeds():
    """Workers read records of a pipe whole."""
    assert 4096 % TASK.itemsize == 0
    (_, _, first), *_, (_, _, last) = each_task(training_tasks(1, 2, MEMBERS, 50))
    assert first == Task(5, 1, first.episode_seed, 50)
    assert f"episode of seed {first.episode_seed} with noise seed 5 and sign +1" in str(first)
    assert str(last).endswith("with no noise")


@pytest.mark.parametrize("episodes", [1, 3])
@pytest.mark.parametrize(
    ("seeding", "who"),
    [("pair", [0, 0, 1, 1, 2]), ("update", [0] * 5), ("independent", [0, 1, 2, 3, 4])],
)
def test_members_have_their_noise_and_share_episodes_as_asked(seeding, who, episodes):
    tasks = training_tasks(1, 2, MEMBERS, 50, episodes=episodes, seeding=seeding)
    found = tasks[["noise_seed", "sign"]].tolist()
    assert found == [member for member in MEMBERS for _ in range(episodes)]
    assert {*tasks["cap"].tolist()} == {50}
    played = [{*each} for each in tasks["episode_seed"].reshape(-1, episodes).tolist()]
    for i, first in enumerate(played):
        assert len(first) == episodes
        for j, second in enumerate(played):
            assert (first == second) == (who[i] == who[j])
            assert bool(first & second) == (who[i] == who[j])
    later = training_tasks(1, 3, MEMBERS, 50, episodes=episodes, seeding=seeding)
    assert not {*tasks["episode_seed"].tolist()} & {*later["episode_seed"].tolist()}


@pytest.mark.parametrize("seeding", ["pair", "update", "independent"])
def test_further_members_leave_the_tasks_before_them_as_they_are(seeding):
    first = [(5, 1), (5, -1), UNPERTURBED]
    tasks = training_tasks(1, 2, first, 50, episodes=2, seeding=seeding)
    more = training_tasks(1, 2, [*first, (6, 1), (6, -1)], 50, episodes=2, seeding=seeding)
    assert np.array_equal(more[: len(tasks)], tasks)


def test_what_lies_in_main_is_pickled_with_what_it_needs_and_found_by_its_name():
    import __main__

    names = {"FACTOR": 2}
    made = ByValue(lambda: __import__("__main__").FACTOR * 3, names)
    assert made() == 6
    assert __main__.FACTOR == 2
    del __main__.FACTOR
