"""Whole runs with networks of the user's own."""

from pathlib import Path

import torch

from es.config import Config
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
