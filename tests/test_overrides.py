"""Whole runs that are restored, with the same options or with others."""

from pathlib import Path

import pytest
import torch

from tests.checkpoints import read, rows, settings
from tests.test_options import learned


def test_an_override_changes_sigma_optimiser_and_momentum(program):
    learned(program, "--momentum", 0.5, "--sigma-decay", 0.5)
    again = ("--restore", "run/latest.safetensors", "--override", "--workers", 0)
    assert program(*again, "--sigma", 0.3, "--max-gradient-updates", 3)[0] == 0
    assert [float(row["sigma"]) for row in rows(Path("run"))] == [0.05, 0.025, 0.3]
    for optimizer in (("--momentum", 0), ("--optimizer", "adam"), ("--optimizer", "adamw")):
        updates = len(rows(Path("run"))) + 1
        status, _, err = program(*again, *optimizer, "--max-gradient-updates", updates)
        assert (status, err) == (0, "")


def test_another_sigma_scales_the_adapted_ones(program):
    learned(program, "--sigma-adapt")
    before = read("run/latest.safetensors").spread
    again = ("--restore", "run/latest.safetensors", "--override", "--workers", 0)
    # An update with a sigma-lr of nearly 0 changes none of them.
    assert program(*again, "--sigma", 0.3, "--sigma-lr", 1e-30, "--max-gradient-updates", 3)[0] == 0
    after = read("run/latest.safetensors")
    assert before is not None
    assert after.spread is not None
    assert before.std() > 0
    assert after.counters.sigma == pytest.approx(0.3)
    assert torch.allclose(after.spread, before)


def test_a_policy_cannot_be_changed_even_on_purpose(program):
    learned(program)
    for change in (
        "--hidden-sizes 3", "--activation tanh", "--obs-norm", "--action-bins 3", "--vbn"
    ):  # fmt: skip
        again = ("--restore", "run/latest.safetensors", "--override", *change.split())
        status, _, err = program(*again, "--max-gradient-updates", 3)
        assert status == 2
        assert err.startswith(f"error: {change.split()[0]} ")
        assert "The policy was made for the checkpoint's" in err


@pytest.mark.parametrize(
    "options",
    ["--n 5 --sampling gaussian", "--n 100 --top-directions 30",
     "--sigma-decay 0.9 --sigma-min 0.01", "--optimizer sgd --momentum 0.5"],
)  # fmt: skip
def test_a_flag_of_a_restored_run_may_be_repeated(program, options):
    """Even where it would make no sense beside the defaults."""
    learned(program, *options.split())
    again = ("--restore", "run/latest.safetensors", "--max-gradient-updates", 3, "--workers", 0)
    for flags in (options.split()[:2], options.split()[2:]):
        assert program(*again, *flags)[::2] == (0, "")


def test_adam_has_two_names_on_resuming_too(program):
    learned(program, "--useAdam")
    again = ("--workers", 0, "--restore", "run/latest.safetensors", "--max-gradient-updates")
    assert program(*again, 3, "--useAdam")[::2] == (0, "")
    assert program(*again, 4, "--optimizer", "adam")[::2] == (0, "")
    status, _, err = program(*again, 5, "--optimizer", "adamw")
    assert status == 2
    assert "--optimizer adamw differs" in err
    assert program(*again, 5, "--optimizer", "adamw", "--override")[::2] == (0, "")


def test_a_lower_cap_holds_at_once(program):
    learned(program, "--adaptive-ep-len")
    again = ("--restore", "run/latest.safetensors", "--override", "--workers", 0)
    program(*again, "--max-episode-length", 5, "--max-gradient-updates", 3)
    assert float(rows(Path("run"))[-1]["episode_length_mean"]) == 5


def test_a_score_of_another_task_is_not_compared_with(program):
    learned(program)
    again = ("--restore", "run/latest.safetensors", "--override", "--workers", 0)
    program(*again, "--env-kwargs", "g=30", "--max-gradient-updates", 3)
    assert settings("run/best.safetensors").env_kwargs == ("g=30",)


def test_a_rate_that_has_decayed_to_nothing_is_loaded_again(program):
    decay = ("--lr", "1e-30", "--lr-decay", "1e-30", "--sigma", "1e-29", "--sigma-decay", "0.001")
    learned(program, *decay, "--max-gradient-updates", 12)
    again = ("--restore", "run/latest.safetensors", "--max-gradient-updates", 13)
    assert program(*again)[::2] == (0, "")


def test_a_target_that_was_met_otherwise_is_not_met(program):
    target = ("--target-return", -5000, "--eval-episodes", 1)
    learned(program, *target, "--max-gradient-updates", 3)
    again = ("--restore", "run/latest.safetensors", "--workers", 0, "--silent", "--override")
    assert program(*again)[1].startswith("Finished already")
    status, out, _ = program(*again, "--env-kwargs", "g=30", "--max-gradient-updates", 6)
    assert status == 0
    assert out.startswith("Solved")


def test_an_override_is_not_left_in_the_settings_of_the_run(program):
    learned(program)
    again = ("--workers", 0, "--restore", "run/latest.safetensors", "--max-gradient-updates")
    program(*again, 3, "--lr", 0.5, "--override")
    assert "override" not in Path("run/config.toml").read_text()
