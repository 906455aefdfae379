"""Networks of the user's own: --net."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from es import count_outputs
from es.algorithm.noise import Stream, derive_seeds
from es.config import Config
from es.environments.spaces import describe_actions
from es.model import initial_theta
from es.networks import make_actor
from es.networks.actors import Decoder
from es.policy import make_policy
from tests.checkpoints import read
from tests.nets import Rich
from tests.networks.descriptions import mlp
from tests.strange import SPACES


def own(net, env_name="CartPole-v1", **settings):
    return make_policy(Config(env_name=env_name, net=f"tests.nets:{net}", seed=1, **settings), None)


def test_the_users_mlp_begins_and_plays_as_the_programs_own():
    policy = own("Plain")
    (seed,) = derive_seeds(1, 0, Stream.PARAMETERS, 1)
    assert np.array_equal(policy.theta, initial_theta(mlp(), seed))
    ours, theirs = policy.recipe.make_actor(), make_actor(mlp())
    for scale in (1, 3):
        for actor in (ours, theirs):
            actor.bind(np.float32(scale) * policy.theta)
            actor.reset()
        for observation in np.random.default_rng(0).normal(size=(50, 4)):
            assert ours.act(observation) == theirs.act(observation)
            np.testing.assert_allclose(ours.outputs, theirs.outputs, rtol=1e-4, atol=1e-5)


def test_actions_are_decoded_and_observations_normalised_as_for_the_programs_own():
    settings: Any = {"env_name": "Pendulum-v1", "obs_norm": True, "action_noise": 0.1}
    policy = own("Plain", **settings)
    mine: Any = policy.recipe.make_actor()
    theirs: Any = make_actor(make_policy(Config(seed=1, **settings), None).network)
    statistics = np.array([[0.5, -1.0, 100.0], [0.5, 3.0, 1e4]])
    for actor in (mine, theirs):
        actor.bind(policy.theta, statistics)
        actor.reset(7, (1, 2))
    for observation in 100 * np.random.default_rng(0).normal(size=(50, 3)):
        np.testing.assert_allclose(mine.act(observation), theirs.act(observation), rtol=1e-4)
    np.testing.assert_allclose(mine.observed(), theirs.observed(), rtol=1e-12)
    mine.reset()
    assert not mine.observed().any()


def test_the_module_of_a_policy_gives_its_actors_outputs():
    policy = own("Rich", "Pendulum-v1")
    module = policy.module()
    actor: Any = policy.recipe.make_actor()
    assert isinstance(module, Rich)
    assert policy.custom
    assert torch.equal(module.features, torch.from_numpy(policy.custom.untrained["features"]))
    actor.bind(policy.theta)
    actor.reset(3)
    observations = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    played = [actor.act(observation) and actor.outputs.copy() for observation in observations]
    torch.manual_seed(3)
    state = None
    for observation, expected in zip(observations, played, strict=True):
        outputs, state = module(torch.from_numpy(observation), state)
        np.testing.assert_allclose(outputs, expected, rtol=1e-5)


def test_the_entries_of_a_dict_are_a_dict_of_tensors():
    policy = own("Parts", "tests.strange:Scene-v0")
    assert policy.normalizer is None
    actor: Any = policy.recipe.make_actor()
    actor.bind(policy.theta)
    actor.reset()
    env: Any = policy.recipe.make_env()
    observation = env.reset(seed=1)[0]
    tensors = actor._tensors(observation, env.observation_space)
    assert tensors.keys() == observation.keys()
    for key, tensor in tensors.items():
        np.testing.assert_allclose(tensor, observation[key], rtol=1e-6)
    assert actor.act(observation) in env.action_space


@pytest.mark.parametrize("name", [name for name in SPACES if name != "Unbounded"])
def test_count_outputs_counts_what_the_networks_of_the_program_have(name):
    space = SPACES[name][1]
    outputs = np.zeros(count_outputs(space), np.float32)
    assert Decoder(describe_actions(space, ""), outputs).decode(0) in space


def test_count_outputs_knows_of_action_bins(program):
    assert count_outputs(spaces.Box(-1, 1, (2,)), bins=5) == 10
    flags = ("--env-name", "Pendulum-v1", "--net", "tests.nets:Plain", "--action-bins", 3)
    status, _, err = program(*flags, "--workers", 0)
    assert status == 2
    assert "the shape (3,)" in err
    train = (*flags, "--net-kwargs", "extra=2", "--n", 2, "--max-gradient-updates", 1)
    assert program(*train, "--workers", 0)[0] == 0


# ---- whole runs ----

RICH = (
    "--env-name", "Pendulum-v1", "--net", "tests.nets:Rich", "--n", 4, "--seed", 1,
    "--max-episode-length", 20, "--obs-norm",
)  # fmt: skip


def test_only_parameters_that_require_a_gradient_are_trained(train):
    before = read(train(*RICH, "--max-gradient-updates", 1))
    after = read(train(*RICH, "--max-gradient-updates", 3, folder="other"))
    frozen = {"frozen.weight", "frozen.bias"}
    norm = {f"norm.{name}" for name in ("running_mean", "running_var", "num_batches_tracked")}
    untrained = {"features", *frozen, *norm}  # and what is shared has one name
    assert before.parameters.keys() - untrained == {
        "cell.weight_ih", "cell.weight_hh", "cell.bias_ih", "cell.bias_hh", "norm.weight",
        "norm.bias", "head.weight", "head.bias",
    }  # fmt: skip
    for name, tensor in before.parameters.items():
        same = tensor == after.parameters[name]
        assert (same if name in untrained else ~same).all(), name


def test_a_state_dict_of_the_users_own_is_taken_over(train):
    policy = own("Rich", "Pendulum-v1")
    module = policy.module()
    for tensor in module.state_dict().values():
        tensor.copy_(torch.arange(tensor.numel()).reshape(tensor.shape))
    torch.save(module.state_dict(), "mine.pth")  # which has what is shared under both names
    flags = (*RICH[:-1], "--max-gradient-updates", 1, "--lr", 1e-30)
    found = read(train("--restore", "mine.pth", *flags))
    for name, tensor in module.state_dict().items():
        if "again" not in name:
            saved = found.parameters[name]
            torch.testing.assert_close(saved, tensor.to(saved.dtype))
