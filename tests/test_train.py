"""Whole runs through the command line, in this process where processes do not matter."""

import re
import tomllib
from pathlib import Path

import numpy as np
import pytest

from es.envs import make_env
from es.model import flatten
from es.networks import make_actor
from es.noise import Stream, derive_seeds
from es.reports.record import COLUMNS
from es.rollouts.rollout import evaluation_seed, rollout
from tests.conftest import CARTPOLE, RUN, read, rows, same, same_run, timeless


@pytest.mark.picture
def test_what_a_run_leaves(program):
    out = program.train("--max-gradient-updates", 3, "--save-every", 2)
    assert {path.name.split(".")[0] for path in RUN.iterdir() if path.name != ".lock"} == {
        "latest", "best", "update-2", "progress", "learning_curve", "config", "events"
    }  # fmt: skip
    assert "Num params in network: 4610" in out
    assert out.count("Unperturbed rank: ") == 3
    assert out.splitlines()[-1].startswith("Finished: 3 updates, 12 episodes")
    found = rows()
    assert list(found[0]) == list(COLUMNS)
    assert [row["update"] for row in found] == ["1", "2", "3"]
    assert [row["episodes"] for row in found] == ["4", "8", "12"]
    steps = [4 * float(row["episode_length_mean"]) for row in found]
    assert [float(row["frames"]) for row in found] == pytest.approx(np.cumsum(steps))
    checkpoint = read(RUN / "latest.safetensors")
    assert checkpoint.counters.update == 3
    assert checkpoint.counters.frames == int(found[-1]["frames"])
    assert read(RUN / "update-2.safetensors").counters.update == 2
    settings = tomllib.loads((RUN / "config.toml").read_text())
    assert settings["seed"] == 1
    assert settings["env-name"] == "CartPole-v1"


def test_the_settings_file_repeats_the_run(program):
    program.train("--max-gradient-updates", 3, "--useAdam", "--run-dir", "a")
    status, _, _ = program("--config", "a/config.toml", "--run-dir", "b")
    assert status == 0
    assert same_run(read("a/latest.safetensors"), read("b/latest.safetensors"))


def test_a_seed_is_drawn_printed_and_saved(program):
    arguments = ("--env-name", "CartPole-v1", "--n", 2, "--workers", 0, "--small-net")
    seeds = set()
    for directory in ("a", "b"):
        _, out, _ = program(*arguments, "--max-gradient-updates", 1, "--run-dir", directory)
        seed = read(f"{directory}/latest.safetensors").settings["seed"]
        assert f"Seed: {seed}\n" in out
        seeds.add(seed)
    assert len(seeds) == 2


@pytest.mark.parametrize("workers", [1, 2, None])
def test_any_number_of_workers_gives_the_same_run_to_the_bit(program, workers):
    options = ("--useAdam", "--variable-ep-len", "--max-gradient-updates", 4)
    program.train(*options, "--run-dir", "a")
    chosen = () if workers is None else ("--workers", workers)
    status, _, err = program(*CARTPOLE, *options, *chosen, "--run-dir", "b")
    assert (status, err) == (0, "")
    assert same_run(read("a/latest.safetensors"), read("b/latest.safetensors"))
    assert same(read("a/best.safetensors").parameters, read("b/best.safetensors").parameters)
    assert timeless(Path("a")) == timeless(Path("b"))


def test_an_older_run_is_kept(program):
    program.train("--max-gradient-updates", 1, "--sigma", 0.2)
    out = program.train("--max-gradient-updates", 2)
    assert f"{RUN} held another run: it is now {RUN}.1." in out
    assert read(f"{RUN}.1/latest.safetensors").settings["sigma"] == 0.2
    assert read(RUN / "latest.safetensors").settings["sigma"] == 0.05


def test_reaching_the_target_ends_the_run_before_the_step(program):
    """And the score can be played again: evaluation and test use the same episodes."""
    out = program.train(
        "--seed", 3, "--target-return", 40, "--max-gradient-updates", 50, "--eval-episodes", 6
    )
    last = out.splitlines()[-1]
    assert last.startswith("Solved: mean ")
    solved = read(RUN / "latest.safetensors")
    assert same(solved.parameters, read(RUN / "best.safetensors").parameters)
    assert solved.solved is not None
    mean, std = solved.solved["mean"], solved.solved["std"]
    assert mean >= 40
    assert solved.counters.update > 0
    assert f"mean {mean:.2f}, standard deviation {std:.2f} over 6 episodes" in last
    assert float(rows()[-1]["unperturbed_return"]) >= 40
    assert len(rows()) == solved.counters.update + 1
    _, played, _ = program(
        "--test", "--no-render", "--episodes", 6, "--restore", RUN / "latest.safetensors"
    )
    assert f"6 episodes: mean {mean:.2f}, standard deviation {std:.2f}" in played
    assert program("--restore", RUN / "latest.safetensors")[1].startswith("Finished already: ")


def test_a_lucky_episode_does_not_reach_the_target(program):
    """The unperturbed episode alone does not count: fresh ones must confirm it."""
    target = ("--seed", 12, "--n", 8, "--target-return", 100, "--max-gradient-updates", 15)
    status, out, _ = program(*CARTPOLE, "--workers", 0, *target)
    assert any(float(row["unperturbed_return"]) >= 100 for row in rows())
    assert float(re.findall(r"Evaluation after \d+ updates: mean ([\d.]+)", out)[0]) < 100
    assert status == 1
    assert len(rows()) == 15


def test_an_evaluation_that_falls_due_with_the_solution_changes_nothing(program):
    """The update that solves the task is the 5th, after which one would be due."""
    options = ("--seed", 9, "--target-return", 40, "--max-gradient-updates", 9)
    program.train(*options, "--eval-every", 5)
    solved = read(RUN / "latest.safetensors")
    assert solved.solved is not None
    assert len(rows()) == 5
    assert solved.counters.update == 4
    assert solved.counters.best_score == solved.solved["mean"]


def test_going_on_after_the_target_takes_the_step_that_was_left_out(program):
    options = ("--n", 20, "--max-gradient-updates", 12)
    program.train(*options, "--run-dir", "whole")
    program.train(*options, "--target-return", 30, "--eval-episodes", 3, "--run-dir", "parts")
    assert read("parts/latest.safetensors").solved
    program("--restore", "parts/latest.safetensors", "--target-return", "None", "--workers", 0)
    assert same_run(read("whole/latest.safetensors"), read("parts/latest.safetensors"))
    assert timeless(Path("whole")) == timeless(Path("parts"))


def test_missing_the_target_is_status_1(program):
    status, out, _ = program(
        *CARTPOLE, "--workers", 0, "--target-return", 501, "--max-gradient-updates", 2
    )
    assert status == 1
    assert out.splitlines()[-1].startswith("Target not reached: ")


def test_the_best_checkpoint_reproduces_its_score(program):
    program.train("--max-gradient-updates", 12)
    best = read(RUN / "best.safetensors")
    scores = [float(row["unperturbed_return"]) for row in rows()]
    assert read(RUN / "latest.safetensors").counters.best_score == max(scores)
    # Ties: the later. An update's unperturbed episode is played by the parameters before it.
    update = max(index for index, score in enumerate(scores) if score == max(scores))
    assert best.counters.update == update
    actor = make_actor(best.network)
    actor.bind(flatten(best.network, best.parameters))
    *_, seed = derive_seeds(1, update, Stream.EPISODE, 3)
    assert rollout(make_env(best.environment), actor, seed, 500).episode_return == max(scores)


def test_of_equal_scores_the_later_is_the_best(program):
    program.train("--max-gradient-updates", 4, "--max-episode-length", 5)
    assert {row["unperturbed_return"] for row in rows()} == {"5.0"}
    assert read(RUN / "best.safetensors").counters.update == 3


def test_evaluations_decide_on_the_best_checkpoint(program):
    out = program.train("--max-gradient-updates", 6, "--eval-every", 2, "--eval-episodes", 3)
    assert out.count("Evaluation after ") == 3
    best = read(RUN / "best.safetensors")
    actor, env = make_actor(best.network), make_env(best.environment)
    actor.bind(flatten(best.network, best.parameters))
    returns = [
        rollout(env, actor, evaluation_seed(1, best.counters.update, index), 500).episode_return
        for index in range(3)
    ]
    assert np.mean(returns) == read(RUN / "latest.safetensors").counters.best_score
    assert f"Evaluation after {best.counters.update} updates: mean {np.mean(returns):.2f}" in out
    assert program("--restore", RUN / "latest.safetensors")[1].startswith("Finished already: ")


def test_frames_and_minutes_end_a_run(program):
    program.train("--max-frames", 500, "--run-dir", "a")
    found = [int(row["frames"]) for row in rows(Path("a"))]
    assert found[-1] >= 500 > found[-2]
    program.train("--max-minutes", 0.002, "--run-dir", "b")
    clock = [float(row["wall_seconds"]) for row in rows(Path("b"))]
    assert clock[-1] >= 0.12 > clock[-2]


def test_the_cap_follows_the_batch_with_variable_ep_len(program):
    out = program.train("--max-gradient-updates", 3, "--variable-ep-len")
    lengths = [float(row["episode_length_mean"]) for row in rows()]
    caps = [int(cap) for cap in re.findall(r"Max episode length: (\d+)", out)]
    assert caps == [100_000, *(int(2 * length) for length in lengths[:-1])]
    assert read(RUN / "latest.safetensors").counters.max_episode_length == int(2 * lengths[-1])
    assert read(RUN / "latest.safetensors").settings["max_episode_length"] == 100_000


def test_silence(program):
    out = program.train("--max-gradient-updates", 2, "--silent")
    assert out.startswith("Finished: 2 updates")
    assert out.count("\n") == 1


def test_a_vector_environment_uses_the_mlp_and_says_so(program):
    _, out, _ = program(
        "--env-name", "Acrobot-v1", "--n", 2, "--workers", 0, "--max-gradient-updates", 1,
        "--max-episode-length", 20,
    )  # fmt: skip
    assert out.startswith(
        "Acrobot-v1 is seen as a vector of 6 numbers: using the MLP (--small-net).\n"
    )
    assert "linear1.weight" in read("checkpoints/Acrobot-v1/latest.safetensors").parameters
