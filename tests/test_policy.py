"""Policies: what is made of settings and checkpoints, and load_policy."""

import copy
import json
import pickle
import re
from functools import partial
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch

from es.algorithm.noise import seed_shared_generators
from es.checkpoint import save
from es.errors import UsageError
from es.policy import load_policy
from tests.checkpoints import read
from tests.conftest import CARTPOLE
from tests.processes import ROOT, run_python

MLP = ("--small-net", "--hidden-sizes", 16)
SCREEN = ("gymnasium.wrappers:FilterObservation", "filter_keys=['screen']")
AWARE = ("tests.strange:Weighted", "weight=[2, 1]", "gymnasium.wrappers:TimeAwareObservation")
RUNS: list[tuple[object, ...]] = [
    ("Pendulum-v1", *MLP, "--obs-norm", "--action-noise", 0.1),
    ("Pendulum-v1", *MLP, "--frame-skip", 3),
    ("Taxi-v4", *MLP, "--sample-actions", "--env-kwargs", "is_rainy=True"),
    ("tests.strange:Parts-v0", *MLP, "--obs-norm"),
    ("BoxingDeterministic-v4", "--max-episode-length", 60),
    ("BreakoutDeterministic-v4", "--fire-reset", "--sample-actions", "--max-episode-length", 150),
    ("tests.strange:ChannelsFirst-v0", "--vbn"),
    ("tests.strange:Picture-v0",),
    ("tests.strange:Whole-v0", *MLP),
    ("tests.strange:Screen-v0", "--env-wrapper", *SCREEN),
    ("Pendulum-v1", *MLP, "--env-wrapper", *AWARE),
    ("Pendulum-v1", "--net", "tests.nets:Rich", "--obs-norm", "--frame-skip", 2),
    ("BoxingDeterministic-v4", "--net", "tests.nets:Grid", "--max-episode-length", 60),
    ("tests.strange:Planes-v0", "--net", "tests.nets:Grid", "--obs-norm"),
    ("tests.strange:Digits-v0", "--net", "tests.nets:Plain"),
    ("tests.strange:Scene-v0", "--net", "tests.nets:Parts"),
]


def play(policy, env, seed, cap):
    """Return and actions of an episode in a loop that knows Gymnasium alone."""
    seed_shared_generators(seed)
    observation, info = env.reset(seed=seed)
    policy.reset(seed)
    total, actions = 0.0, list[bytes]()
    for _ in range(cap):
        action = policy(observation, info)
        actions.append(np.asarray(action).tobytes())
        observation, reward, terminated, truncated, info = env.step(action)
        total += float(reward)
        if terminated or truncated:
            break
    return total, actions


@pytest.mark.parametrize("run", RUNS)
def test_returns_are_those_of_test(trained, program, run):
    path = trained(*run)
    play_two = ("--seed", 7, "--episodes", 2, "--trust")
    status, out, err = program("--test", "--json", "--restore", path, *play_two)
    assert (status, err) == (0, "")
    told = json.loads(out)
    assert len(told["seeds"]) == 2
    policy = load_policy(path, trust=True)
    env = gymnasium.make(policy.env_id, disable_env_checker=True, **policy.env_kwargs)
    env = policy.make_env() if "--env-wrapper" in run else env
    skip, cap = policy.settings.get("frame_skip", 1), policy.settings["max_episode_length"]
    chosen: set[bytes] = set()
    for index, seed in enumerate(told["seeds"]):
        total, actions = play(policy, env, seed, cap)
        assert total == pytest.approx(told["returns"][index])
        assert -(-len(actions) // skip) == told["lengths"][index]
        chosen |= {*actions}
    assert len(chosen) > 1
    env.close()


def test_memory_is_forgotten_with_the_episode_and_shared_with_nobody(trained):
    path, name = trained("tests.strange:Picture-v0"), "tests.strange:Picture-v0"
    policy, another = load_policy(path, env_name=name), load_policy(path, env_name=name)
    images = np.random.default_rng(0).integers(0, 255, (6, 30, 40, 4), dtype=np.uint8)
    first = [policy(image) for image in images]
    went_on = [policy(image) for image in images]
    assert not np.array_equal(first, went_on)
    policy.reset()
    again = []
    for image in images:
        again.append(policy(image))
        another(255 - image)
    assert np.array_equal(first, again)


@pytest.mark.parametrize("name", ["Pendulum-v1", "tests.strange:Whole-v0"])
def test_a_copy_of_a_policy_that_has_played_plays_alike(trained, name):
    policy = load_policy(trained(name, *MLP), env_name=name)
    observations = [policy.make_env().observation_space.sample() for _ in range(20)]
    expected = [policy(each) for each in observations]
    for each in (copy.deepcopy(policy), pickle.loads(pickle.dumps(policy)), policy):
        assert np.array_equal([*map(each, observations)], expected)


def test_it_says_what_it_is_for(trained):
    flags = (*MLP, "--frame-skip", 2, "--env-kwargs", "g=5.0")
    policy = load_policy(trained("Pendulum-v1", *flags))
    assert (policy.env_id, policy.env_kwargs) == ("Pendulum-v1", {"g": 5.0})
    assert (policy.settings["frame_skip"], policy.settings["seed"]) == (2, 1)
    assert (policy.update, policy.frames) == (1, 200)


def test_weights_alone_want_an_environment(trained):
    path = trained("CartPole-v1", "--small-net")
    torch.save(read(path).parameters, "bare.pth")
    with pytest.raises(UsageError, match="greedy applies only to policies that draw"):
        load_policy(path, greedy=True)
    bare = load_policy("bare.pth", env_name="CartPole-v1")
    observations = np.random.default_rng(0).uniform(-1, 1, (100, 4)).astype(np.float32)
    assert (bare(observations) == load_policy(path)(observations)).all()
    assert (bare.env_id, bare.update) == ("CartPole-v1", 0)
    with pytest.raises(UsageError, match="env_name="):
        load_policy("bare.pth")


def test_another_environment_is_played_if_the_policy_fits_it(trained, program):
    """Also instead of a module's, which is not imported then."""
    path = trained("CartPole-v1", "--small-net")
    assert load_policy(path, env_name="CartPole-v0").env_id == "CartPole-v0"
    with pytest.raises(UsageError, match="does not fit env_name Acrobot-v1"):
        load_policy(path, env_name="Acrobot-v1")
    Path("run").rename("fitting")
    path = trained("CartPole-v1", "--small-net", "--obs-norm")
    save(read(path)._replace(normalizer={}), Path("without.safetensors"))
    with pytest.raises(UsageError, match="the statistics of observations do not fit"):
        load_policy("without.safetensors")
    Path("run").rename("normalized")
    path = trained("tests.strange:Whole-v0", *MLP)
    status, _, err = program(
        "--restore", path, "--env-name", "CartPole-v1", "--test", "--no-render", "--override"
    )
    assert (status, err.count("does not fit --env-name CartPole-v1")) == (2, 1)


def test_loading_leaves_the_libraries_of_the_program_as_they_were(trained):
    path = trained("CartPole-v1", *MLP)
    program = (
        "import torch, gymnasium; torch.set_num_threads(2); import es; "
        f"es.load_policy({str(Path(path).resolve())!r}); "
        "print(torch.get_num_threads(), gymnasium.logger.min_level)"
    )
    done = run_python(program, OMP_NUM_THREADS="2")
    assert (done.stdout, done.stderr) == ("2 30\n", "")


def test_the_example_of_the_docs_runs(program, capfd):
    section = (ROOT / "docs" / "python.md").read_text().partition("## Use a policy")[2]
    example = section.partition("```python\n")[2].partition("```")[0]
    program(*CARTPOLE, "--workers", 0, "--max-gradient-updates", 3)
    exec(example, {})
    assert re.findall(r"seed (\d): \d+\.0", capfd.readouterr().out) == ["0", "1", "2"]


# ---- batches and predict ----

FIRE = ("--fire-reset", "--max-episode-length", 150)
BATCHES = {
    "tests.strange:Picture-v0": (),
    "tests.strange:Parts-v0": MLP,
    "tests.strange:Doubles-v0": (*MLP, "--frame-skip", 2),
    "Taxi-v4": MLP,
}


@pytest.mark.parametrize("name", BATCHES)
def test_a_batch_is_played_as_by_a_policy_for_each_episode(trained, name):
    """In a vector environment of Gymnasium's, as docs/python.md says."""
    path = trained(name, "--lr", 1e-3, *BATCHES[name])
    batched, *each = (load_policy(path, env_name=name) for _ in range(4))
    same_step = gymnasium.vector.AutoresetMode.SAME_STEP
    limits = 4, 3, 5  # of the episodes of each place, in steps
    make = [
        partial(lambda limit: gymnasium.wrappers.TimeLimit(batched.make_env(), limit), limit)
        for limit in limits
    ]
    env = gymnasium.vector.SyncVectorEnv(make, autoreset_mode=same_step)
    observations, _ = env.reset(seed=1)
    batched.reset()
    for _ in range(9):
        parts = [*gymnasium.vector.utils.iterate(env.observation_space, observations)]
        actions = batched(observations)
        expected = [policy(part) for policy, part in zip(each, parts, strict=True)]
        assert len(actions) == 3
        assert np.array_equal(actions, expected)
        observations, _, terminated, truncated, _ = env.step(actions)
        ended = terminated | truncated
        batched.reset(which=ended)
        for policy, over in zip(each, ended, strict=True):
            if over:
                policy.reset()
    env.close()


def test_lives_of_a_batch_are_each_episodes_own(trained):
    policy = load_policy(trained("BreakoutDeterministic-v4", *FIRE))
    screens = np.zeros((2, 210, 160, 3), np.uint8)
    for lives in ([5, 5], [5, 5], [5, 5], [5, 4]):
        actions = policy(screens, {"lives": np.array(lives)})
    assert actions[1] == 1 != actions[0]  # FIRE


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
    another = load_policy(path)
    another.reset(3)
    begun = [another.predict(observation, episode_start=step == 0)[0] for step in range(20)]
    assert begun == [pair[0] for pair in pairs]
    policy.reset(which=[True])  # of fewer episodes than there were
