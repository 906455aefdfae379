"""Many observations at once, and `predict`."""

import gymnasium
import numpy as np
import pytest

from es.loading import load_policy

MLP = ("--small-net", "--hidden-sizes", 16)
FIRE = ("--fire-reset", "--max-episode-length", 150)
BATCHES = {
    "tests.strange:Picture-v0": (),
    "tests.strange:Parts-v0": MLP,
    "tests.strange:Mission-v0": MLP,
    "tests.strange:Digits-v0": MLP,
    "tests.strange:Doubles-v0": (*MLP, "--frame-skip", 2),
    "FrozenLake-v1": MLP,
}


@pytest.mark.parametrize("name", BATCHES)
def test_a_batch_is_played_as_by_a_policy_for_each_episode(trained, name):
    """In a vector environment of Gymnasium's, of which one episode ends before the others."""
    path = trained(name, "--lr", 1e-3, *BATCHES[name])
    batched, *each = (load_policy(path, env_name=name) for _ in range(4))
    env = gymnasium.vector.SyncVectorEnv([batched.make_env] * 3)
    observations, _ = env.reset(seed=1)
    batched.reset()
    for step in range(4):
        if step == 2:
            each[1].reset()
            batched.reset(which=[False, True, False])
        parts = [*gymnasium.vector.utils.iterate(env.observation_space, observations)]
        actions = batched(observations)
        expected = [policy(part) for policy, part in zip(each, parts, strict=True)]
        assert len(actions) == 3
        assert np.array_equal(actions, expected)
        observations = env.step(actions)[0]
    env.close()


def test_lives_of_a_batch_are_each_episodes_own(trained):
    policy = load_policy(trained("BreakoutDeterministic-v4", *FIRE))
    screens = np.zeros((2, 210, 160, 3), np.uint8)
    for lives in ([5, 5], [5, 5], [5, 5], [5, 4]):
        actions = policy(screens, {"lives": np.array(lives)})
    assert actions[1] == 1  # FIRE


def test_predict_remembers_by_its_state_as_stable_baselines_has_it(trained):
    name = "tests.strange:Picture-v0"
    policy, ours = (load_policy(trained(name), env_name=name) for _ in range(2))
    images = np.random.default_rng(0).integers(0, 255, (5, 2, 30, 40, 4), dtype=np.uint8)
    expected = [ours(pair) for pair in images]
    state, found = None, []
    for pair in images:
        action, state = policy.predict(pair, state, episode_start=None)
        policy.predict(images[0])  # another episode
        found.append(action)
    assert np.array_equal(found, expected)
    action, state = policy.predict(images[0], state, episode_start=np.array([True, False]))
    assert np.array_equal(action[0], expected[0][0])
    assert not np.array_equal(action[1], expected[0][1])
    single, _ = policy.predict(images[0][1])
    assert np.array_equal(single, expected[0][1])
    with pytest.raises(ValueError, match="argument 2"):
        policy.predict(images[0][:1], state)


def test_predict_draws_actions_unless_it_is_to_be_deterministic(program):
    program.train("--sample-actions", "--max-gradient-updates", 1)
    path = "checkpoints/CartPole-v1/latest.safetensors"
    policy, greedy = load_policy(path), load_policy(path, greedy=True)
    observation = np.zeros(4, np.float32)  # at which both outputs are about as large
    drawn = [policy.predict(observation) for _ in range(100)]
    assert {int(action) for action, _ in drawn} == {0, 1}
    assert all(state is None for _, state in drawn)
    for _ in range(20):
        assert policy.predict(observation, deterministic=True)[0] == greedy(observation)
    batch = np.zeros((2, 4), np.float32)
    policy.reset(seed=3)  # before there was a batch
    pairs = [policy(batch) for _ in range(20)]
    for place, seed in enumerate((3, 4)):
        another = load_policy(path)
        another.reset(seed)
        assert [another(observation) for _ in range(20)] == [pair[place] for pair in pairs]
    policy.reset(which=[True])  # of fewer episodes than there were
