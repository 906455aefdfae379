"""Every option in whole runs: the same to the bit for any workers, and after resuming."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from es.policy import make_policy
from tests.checkpoints import read, rows, same, same_run, timeless

PENDULUM = "--env-name Pendulum-v1 --max-episode-length 30 --hidden-sizes 8"
BOXING = "--env-name BoxingDeterministic-v4 --max-episode-length 60 --sigma 0.3"
OPTIONS = {
    "paper": f"{PENDULUM} --n 6 --obs-norm --action-bins 5 --action-noise 0.1 --shaping "
    "centered-rank --optimizer adam --weight-decay 0.01 --activation tanh --adaptive-ep-len "
    "--param-fraction 0.5 --episodes-per-perturbation 2 --episode-seeding update",
    "ars": f"{PENDULUM} --n 6 --obs-norm --hidden-sizes --shaping normalized --top-directions 2 "
    "--lr-schedule linear --reward-shift -1 --frame-skip 2 --sigma-decay 0.5 --sigma-min 0.02 "
    "--action-noise 0.1 --reward-clip -9 -0.5 --squash clip --obs-clip 0 --obs-std-floor 0.5",
    "gaussian": "--env-name CartPole-v1 --n 5 --sampling gaussian --shaping raw --momentum 0.9 "
    "--weight-decay 0.1 --lr 0.001 --lr-schedule cosine --lr-decay 0.9 --activation relu "
    "--variable-ep-len --episode-seeding independent",
    "drawn": "--env-name CartPole-v1 --n 4 --sample-actions",
    "wrapper": "--env-name CartPole-v1 --n 4 --env-wrapper tests.strange:Weighted weight=[0.5,2] "
    "cost=3",
    "network": "--env-name Pendulum-v1 --max-episode-length 20 --n 4 --obs-norm "
    "--net tests.nets:Rich",
    "adamw": "--env-name CyclicMDP-v0 --env-kwargs states=4 horizon=50 --n 4 --obs-norm "
    "--optimizer adamw --weight-decay 0.1 --shaping normalized --eval-every 2 --eval-episodes 2",
    "pixels": f"{BOXING} --n 4 --vbn --noop-max 30 --fire-reset --sticky-actions 0.25 "
    "--frame-skip 3 --optimizer adam --lr 0.01 --shaping raw",
    "pgpe": f"{PENDULUM} --n 4 --n-max 12 --frames-per-update 250 --obs-norm --hidden-sizes "
    "--init zero --optimizer clipup --max-speed 0.05 --sigma-adapt --shaping centered-rank",
    "MuJoCo": "--env-name HalfCheetah-v5 --max-episode-length 20 --n 6 --obs-norm --useAdam "
    "--action-noise 0.1 --variable-ep-len",
    "Box2D": "--env-name LunarLander-v3 --n 6 --lr 0.01 --episodes-per-perturbation 2 "
    "--adaptive-ep-len",
    "capped": "--env-name Pendulum-v1 --max-episode-length 90 --n 6 --training-ep-len 30 "
    "--episodes-per-perturbation 2",
}  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_the_same_run_to_the_bit_with_any_workers_and_after_resuming(program, options):
    updates = 6 if "Boxing" not in options else 3
    run = (*options.split(), "--seed", 3, "--max-gradient-updates", updates, "--save-every", 2)
    status, _, err = program(*run, "--workers", 0, "--run-dir", "whole")
    assert (status, err) == (0, "")
    assert any(float(row["grad_norm"]) > 0 for row in rows(Path("whole"))[2:])
    assert program(*run, "--workers", 2, "--run-dir", "shared")[0] == 0
    whole = read("whole/latest.safetensors")
    assert same_run(read("shared/latest.safetensors"), whole)
    assert timeless(Path("shared")) == timeless(Path("whole"))
    Path("shared/update-2.safetensors").replace("shared/latest.safetensors")
    status, _, err = program("--restore", "shared/latest.safetensors", "--trust", "--workers", 0)
    assert (status, err) == (0, "")
    assert same_run(read("shared/latest.safetensors"), whole)
    assert timeless(Path("shared")) == timeless(Path("whole"))
    clock = [float(row["wall_seconds"]) for row in rows(Path("shared"))]
    assert clock == sorted(clock)


@pytest.mark.parametrize("options", ["paper", "drawn", "adamw", "pixels"])
def test_the_best_checkpoint_plays_as_it_was_evaluated(program, options):
    """With the statistics, the reference batch and the environment of that moment."""
    run = (*OPTIONS[options].split(), "--seed", 3, "--eval-every", 1, "--eval-episodes", 2)
    updates = 2 if options == "drawn" else 3  # the second evaluation of that one is worse
    command = (*run, "--workers", 0, "--max-gradient-updates", updates, "--run-dir", "run")
    assert program(*command)[0] == 0
    saved = read("run/best.safetensors")
    assert saved.config
    assert saved.counters.update == (1 if options == "drawn" else 3)
    best = saved.counters.best_score
    if options == "pixels":  # its reference batch is not drawn again
        another = make_policy(replace(saved.config, seed=4), saved)
        assert same(torch.from_numpy(another.vbn_batch), saved.vbn_batch)
    cap = ("--max-episode-length", {"pixels": 60, "drawn": 500}.get(options, 30))
    status, out, err = program(
        "--test", "--no-render", "--episodes", 2, "--restore", "run/best.safetensors", *cap
    )
    assert (status, err) == (0, "")
    assert f"2 episodes: mean {best:.2f}," in out


def test_observation_statistics_move_with_training_alone(program):
    run = (*OPTIONS["paper"].split(), "--seed", 3, "--workers", 0, "--max-gradient-updates", 2)
    program(*run, "--run-dir", "plain")
    program(*run, "--eval-every", 1, "--eval-episodes", 2, "--run-dir", "evaluated")
    plain, evaluated = (
        read(f"{name}/latest.safetensors").normalizer for name in ("plain", "evaluated")
    )
    assert plain is not None
    assert plain["count"] > 0
    assert same(plain, evaluated)


PLAIN: dict[str, Any] = {}  # the parameters without any option, trained once


def without_options(program):
    if not PLAIN:
        PLAIN.update(learned(program))
    return PLAIN


def learned(program, *options):
    """The parameters after two updates."""
    run = (
        "--env-name", "Pendulum-v1", "--max-episode-length", 20, "--n", 4, "--seed", 5,
        "--shaping", "raw", "--lr", 0.001, "--workers", 0, "--max-gradient-updates", 2,
    )  # fmt: skip
    shutil.rmtree("run", ignore_errors=True)
    status, _, err = program(*run, "--run-dir", "run", *options)
    assert (status, err) == (0, "")
    return read("run/latest.safetensors").parameters


@pytest.mark.parametrize(
    "option",
    [
        "--activation tanh", "--obs-norm", "--action-bins 3", "--action-noise 0.5",
        "--frame-skip 2", "--env-kwargs g=3", "--shaping nes", "--shaping centered-rank",
        "--shaping normalized", "--sampling gaussian", "--top-directions 1", "--optimizer adam",
        "--optimizer adamw", "--momentum 0.5", "--weight-decay 0.5", "--lr-schedule linear",
        "--lr-schedule cosine", "--sigma-decay 0.5", "--param-fraction 0.5",
        "--episodes-per-perturbation 2", "--episode-seeding update",
        "--episode-seeding independent", "--hidden-sizes 7", "--sigma-adapt",
        "--frames-per-update 200", "--squash clip", "--reward-clip -5 -4",
        "--optimizer clipup --max-speed 0.1",
    ],
)  # fmt: skip
def test_every_option_makes_a_difference(program, option):
    assert not same(without_options(program), learned(program, *option.split()))


@pytest.mark.parametrize(
    ("others", "option"),
    [
        ("--obs-norm", "--obs-clip 0.1"),
        ("--obs-norm", "--obs-std-floor 9"),
        ("--optimizer clipup --max-speed 0.1", "--max-speed 0.0001"),
    ],
)
def test_options_of_others_make_a_difference_to_them(program, others, option):
    assert not same(
        learned(program, *others.split()), learned(program, *f"{others} {option}".split())
    )


@pytest.mark.parametrize("option", ["--reward-shift 0.5", "--adaptive-ep-len"])
def test_options_for_episodes_of_different_lengths_make_a_difference(program, option):
    game = ("--env-name", "CartPole-v1", "--max-episode-length", 500, "--sigma", 0.1, "--n", 20)
    assert not same(learned(program, *game), learned(program, *game, *option.split()))


def test_a_policy_that_draws_its_actions_can_be_played_without(program):
    run = (*OPTIONS["drawn"].split(), "--seed", 3, "--workers", 0, "--max-gradient-updates", 1)
    program(*run, "--run-dir", "drawn")
    test = ("--test", "--json", "--seed", 1, "--episodes", 5, "--restore")
    drawn, greedy, largest = (
        program(*test, "drawn/latest.safetensors", *more)[1]
        for more in ((), ("--greedy",), ("--no-sample-actions",))
    )
    assert drawn != greedy == largest


def test_reported_returns_are_not_shifted_and_the_policy_itself_has_no_noise(program):
    first = []
    for options in ((), ("--reward-shift", 100), ("--action-noise", 0.5)):
        learned(program, *options)
        first.append(rows(Path("run"))[0])
    plain, shifted, noisy = first
    assert shifted["return_mean"] == plain["return_mean"] != noisy["return_mean"]
    assert noisy["unperturbed_return"] == plain["unperturbed_return"]


def test_the_progress_shows_scheduled_rates_and_decayed_sigma(program):
    options = (
        "--lr-schedule", "linear", "--max-gradient-updates", 4, "--sigma-decay", 0.5,
        "--sigma-min", 0.01,
    )  # fmt: skip
    learned(program, *options)
    rates = [float(row["lr"]) for row in rows(Path("run"))]
    assert rates == pytest.approx([0.001, 0.00075, 0.0005, 0.00025])
    assert [float(row["sigma"]) for row in rows(Path("run"))] == [0.05, 0.025, 0.0125, 0.01]
    status, _, err = program("--restore", "run/latest.safetensors", "--max-gradient-updates", 8)
    assert status == 2
    assert "--max-gradient-updates 8 differs" in err
