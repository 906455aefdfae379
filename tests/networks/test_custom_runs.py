"""Whole runs with networks of the user's own."""

from pathlib import Path

import gymnasium
import pytest
import torch

from es import load_policy
from es.config import Config
from es.rollouts.tasks import evaluation_seeds
from es.run import command_for
from tests.checkpoints import read, same_run
from tests.networks.test_custom import own

PLAIN = ("--env-name", "CartPole-v1", "--net", "tests.nets:Plain", "--n", 4, "--seed", 1)
RICH = (
    "--env-name", "Pendulum-v1", "--net", "tests.nets:Rich", "--n", 4, "--seed", 1,
    "--max-episode-length", 20, "--obs-norm",
)  # fmt: skip


def test_any_number_of_workers_and_a_resume_give_the_same_run(train):
    whole = read(train(*RICH, "--max-gradient-updates", 4, folder="whole"))
    path = train(*RICH, "--max-gradient-updates", 2, workers=2)
    named = ("--restore", path, "--net", "tests.nets:Rich", "--max-gradient-updates", 4)
    assert same_run(whole, read(train(*named, workers=1)))


def test_only_parameters_that_require_a_gradient_are_trained(train):
    before = read(train(*RICH, "--max-gradient-updates", 1))
    after = read(train(*RICH, "--max-gradient-updates", 3, folder="other"))
    frozen = {"frozen.weight", "frozen.bias"}
    norm = {f"norm.{name}" for name in ("running_mean", "running_var", "num_batches_tracked")}
    tied = {f"again.{name}" for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")}
    untrained = {"features", *frozen, *norm, *tied}
    assert before.parameters.keys() - untrained == {
        "cell.weight_ih", "cell.weight_hh", "cell.bias_ih", "cell.bias_hh", "norm.weight",
        "norm.bias", "head.weight", "head.bias",
    }  # fmt: skip
    for name, tensor in before.parameters.items():
        same = tensor == after.parameters[name]
        assert (same if name in untrained else ~same).all(), name


@pytest.mark.parametrize(
    "run",
    [
        ("CartPole-v1", "Plain"),
        ("Pendulum-v1", "Rich", "--obs-norm", "--frame-skip", 2),
        ("PongDeterministic-v4", "Grid", "--max-episode-length", 30),
        ("tests.strange:Planes-v0", "Grid", "--obs-norm"),
        ("tests.strange:Digits-v0", "Plain"),
        ("tests.strange:Scene-v0", "Parts"),
    ],
)
def test_it_is_tested_and_loaded_as_it_was_trained(train, program, run):
    name, net, *flags = run
    own_net = ("--net", f"tests.nets:{net}")
    path = train("--env-name", name, *own_net, "--n", 2, "--max-gradient-updates", 1, *flags)
    own_env = ("--env-name", name) if ":" in name else ()
    status, out, err = program(
        "--test", "--no-render", "--restore", path, "--seed", 7, "--episodes", 1, *own_net, *own_env
    )
    assert (status, err) == (0, "")
    policy = load_policy(path, net=own_net[1], env_name=name if own_env else None)
    env = gymnasium.make(policy.env_id, disable_env_checker=True, **policy.env_kwargs)
    total, steps, over = 0.0, 0, False
    seed = next(evaluation_seeds(7, policy.update))
    observation, _ = env.reset(seed=seed)
    policy.reset(seed)
    skip, cap = policy.settings.get("frame_skip", 1), policy.settings["max_episode_length"]
    while not over and steps < cap:
        observation, reward, terminated, truncated, _ = env.step(policy(observation))
        total, steps, over = total + float(reward), steps + 1, terminated or truncated
    assert f"reward {total:.2f}, {-(-steps // skip)} steps" in out


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


def test_commands_ask_for_the_module_of_what_a_script_has_defined():
    config = Config(env_name="CartPole-v1", net="__main__:Plain")
    assert "--net MODULE:Plain" in command_for(config, Path("latest.safetensors"))
