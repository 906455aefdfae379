import numpy as np
import pytest

from es.envs import describe_env, make_env


def play(actions, *arguments):
    env = make_env(describe_env("CyclicMDP-v0", arguments))
    observations, rewards = [env.reset(seed=0)[0].tolist()], []
    for action in actions:
        observation, reward, terminated, truncated, _ = env.step(action)
        observations.append(observation.tolist())
        rewards.append(reward)
        if terminated or truncated:
            break
    return observations, rewards, terminated, truncated


def test_the_ring_of_three_states():
    observations, rewards, terminated, truncated = play([1, 1, 1, 1, 1, 0])
    a, b, c = np.eye(3).tolist()
    assert observations == [a, b, c, a, b, c, c]
    assert rewards == [1, 1, 2, 1, 1, -1]
    assert (terminated, truncated) == (True, False)
    _, rewards, terminated, truncated = play([1] * 5000)
    assert (sum(rewards), len(rewards)) == (2000, 1500)
    assert (terminated, truncated) == (False, True)


def test_states_rewards_and_horizon_are_arguments():
    observations, rewards, _, truncated = play(
        [1] * 9, "states=2", "rewards=[0.5, -3]", "horizon=5"
    )
    assert observations[:3] == [[1, 0], [0, 1], [1, 0]]
    assert rewards == [0.5, -3, 0.5, -3, 0.5]
    assert truncated
    assert play([1] * 5, "states=5")[1] == [1, 1, 1, 1, 2]
    with pytest.raises(Exception, match="rewards has 1 numbers for 3 states"):
        play([], "rewards=[1]")


def test_the_picture_shows_the_state():
    env = make_env(describe_env("CyclicMDP-v0"), "rgb_array")
    env.reset(seed=0)
    env.step(1)
    picture = np.asarray(env.render())
    assert picture.shape == (100, 300, 3)
    assert picture[50, [50, 150, 250], 0].argmax() == 1
