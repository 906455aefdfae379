"""Whole runs through the command line, in this process where processes do not matter."""

import csv
import re
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch

from envs import make_env
from es.checkpoint import save
from es.monitor.record import COLUMNS
from es.noise import Stream, derive_seeds
from es.rollout import evaluation_seed, rollout
from model import flatten, make_actor
from tests.conftest import CARTPOLE, read, same, same_run

RUN = Path("checkpoints/CartPole-v1")


def rows(directory=RUN):
    with (directory / "progress.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def timeless(directory):
    return [
        {key: row[key] for key in row if key not in ("wall_seconds", "steps_per_second")}
        for row in rows(directory)
    ]


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
    checkpoint = read(RUN / "latest.pth")
    assert checkpoint.counters.update == 3
    assert checkpoint.counters.frames == int(found[-1]["frames"])
    assert read(RUN / "update-2.pth").counters.update == 2
    settings = tomllib.loads((RUN / "config.toml").read_text())
    assert settings["seed"] == 1
    assert settings["env-name"] == "CartPole-v1"


def test_the_settings_file_repeats_the_run(program):
    program.train("--max-gradient-updates", 3, "--useAdam", "--run-dir", "a")
    status, _, _ = program("--config", "a/config.toml", "--run-dir", "b")
    assert status == 0
    assert same_run(read("a/latest.pth"), read("b/latest.pth"))


def test_a_seed_is_drawn_printed_and_saved(program):
    arguments = ("--env-name", "CartPole-v1", "--n", 2, "--workers", 0, "--small-net")
    seeds = set()
    for directory in ("a", "b"):
        _, out, _ = program(*arguments, "--max-gradient-updates", 1, "--run-dir", directory)
        seed = read(f"{directory}/latest.pth").settings["seed"]
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
    assert same_run(read("a/latest.pth"), read("b/latest.pth"))
    assert same(read("a/best.pth").parameters, read("b/best.pth").parameters)
    assert timeless(Path("a")) == timeless(Path("b"))


@pytest.mark.parametrize(
    "options",
    [
        ("--useAdam", "--lr", 0.02),
        ("--lr-decay", 0.9, "--variable-ep-len"),
        ("--eval-every", 3, "--eval-episodes", 2),
    ],
)
def test_a_resumed_run_equals_an_uninterrupted_one_to_the_bit(program, options):
    program.train(*options, "--max-gradient-updates", 20, "--run-dir", "whole")
    program.train(*options, "--max-gradient-updates", 9, "--run-dir", "parts")
    status, out, err = program(
        "--restore", "parts/latest.pth", "--max-gradient-updates", 20, "--workers", 0
    )
    assert (status, err) == (0, "")
    assert "Episode num: 40\n" in out
    assert same_run(read("whole/latest.pth"), read("parts/latest.pth"))
    assert same(read("whole/best.pth").parameters, read("parts/best.pth").parameters)
    assert timeless(Path("whole")) == timeless(Path("parts"))
    clock = [float(row["wall_seconds"]) for row in rows(Path("parts"))]
    assert clock == sorted(clock)


def test_pong_learns_from_pixels_and_resumes_to_the_bit(program):
    options = (
        "--env-name", "PongDeterministic-v0", "--n", 2, "--seed", 2, "--useAdam", "--lr", 0.01,
        "--sigma", 0.3, "--max-episode-length", 150,
    )  # fmt: skip
    program(*options, "--max-gradient-updates", 3, "--workers", 0, "--run-dir", "whole")
    program(*options, "--max-gradient-updates", 1, "--workers", 2, "--run-dir", "parts")
    program("--restore", "parts/latest.pth", "--max-gradient-updates", 3)
    assert any(float(row["grad_norm"]) > 0 for row in rows(Path("parts"))[1:])
    assert same_run(read("whole/latest.pth"), read("parts/latest.pth"))
    status, out, _ = program(
        "--test", "--no-render", "--episodes", 1, "--restore", "parts/best.pth"
    )
    assert status == 0
    assert out.startswith("Episode 1: reward ")


def test_a_run_killed_between_its_row_and_its_checkpoint_carries_on(program):
    program.train("--max-gradient-updates", 5, "--run-dir", "whole")
    program.train("--max-gradient-updates", 3, "--save-every", 2, "--run-dir", "parts")
    Path("parts/update-2.pth").replace("parts/latest.pth")
    program("--restore", "parts/latest.pth", "--max-gradient-updates", 5)
    assert timeless(Path("whole")) == timeless(Path("parts"))
    assert same_run(read("whole/latest.pth"), read("parts/latest.pth"))


def test_a_finished_run_says_so(program):
    program.train("--max-gradient-updates", 2)
    before = {path: path.read_bytes() for path in RUN.iterdir()}
    status, out, err = program("--restore", RUN / "latest.pth")
    assert (status, err) == (0, "")
    assert out == f"Finished already: the run of {RUN}/latest.pth has come to 2 updates " + (
        "(--max-gradient-updates).\n"
    )
    assert {path: path.read_bytes() for path in RUN.iterdir()} == before


def test_a_different_setting_is_an_error_unless_overridden(program):
    program.train("--max-gradient-updates", 2)
    again = ("--restore", RUN / "latest.pth", "--max-gradient-updates", 3)
    status, out, err = program(*again, "--lr", 0.5)
    assert (status, out) == (2, "")
    assert "--lr 0.5 differs from the checkpoint's 0.1" in err
    assert "--override" in err
    status, out, _ = program(*again, "--lr", 0.5, "--override", "--workers", 1)
    assert status == 0
    assert "Learning rate: 0.500000" in out
    assert read(RUN / "latest.pth").settings["lr"] == 0.5
    # Overriding is not inherited.
    assert program(*again[:-1], 4, "--lr", 0.7)[0] == 2


def learning_rates(directory=RUN):
    return [float(row["lr"]) for row in rows(directory)]


def test_an_override_of_rate_or_decay_holds_from_then_on(program):
    program.train("--lr-decay", 0.5, "--max-gradient-updates", 3)
    again = ("--override", "--workers", 0, "--restore", RUN / "latest.pth")
    program(*again, "--lr-decay", 0.1, "--max-gradient-updates", 5)
    program(*again, "--lr", 7, "--max-gradient-updates", 7)
    expected = [0.1, 0.05, 0.025, 0.0125, 0.00125, 7, 0.7]
    assert learning_rates() == pytest.approx(expected)


def test_an_override_may_change_the_optimiser(program):
    program.train("--max-gradient-updates", 2, "--lr", 0.01)
    status, _, _ = program(
        "--restore", RUN / "latest.pth", "--max-gradient-updates", 5, "--useAdam", "--override"
    )
    assert status == 0
    assert "exp_avg" in read(RUN / "latest.pth").optimizer["state"][0]


def test_another_checkpoint_starts_a_new_run_beside_the_old_one(program):
    program.train("--max-gradient-updates", 6, "--save-every", 2)
    before = {path: path.read_bytes() for path in RUN.iterdir()}
    branch = ("--restore", RUN / "update-4.pth", "--max-gradient-updates", 6, "--workers", 0)
    assert program(*branch)[0] == 0
    fresh = RUN.with_name("CartPole-v1-from-update-4")
    assert [row["update"] for row in rows(fresh)] == ["5", "6"]
    assert same(read(fresh / "latest.pth").parameters, read(RUN / "latest.pth").parameters)
    assert program(*branch, "--run-dir", "mine")[0] == 0
    assert same_run(read("mine/latest.pth"), read(fresh / "latest.pth"))
    assert program(*branch, "--run-dir", RUN)[0] == 2
    assert {path: path.read_bytes() for path in RUN.iterdir()} == before


def test_a_bare_state_dict_restores_the_weights_alone(program):
    program.train("--max-gradient-updates", 2, "--run-dir", "old")
    weights = read("old/latest.pth").parameters
    torch.save(weights, "weights.pth")
    status, _out, _ = program(
        *CARTPOLE, "--workers", 0, "--restore", "weights.pth", "--max-gradient-updates", 1,
        "--sigma", 1e-9,
    )  # fmt: skip
    assert status == 0
    assert [row["update"] for row in rows()] == ["1"]
    for name, tensor in read(RUN / "best.pth").parameters.items():
        torch.testing.assert_close(tensor, weights[name])
    again = ("--test", "--no-render", "--episodes", 1, "--restore", "weights.pth", "--seed", 1)
    assert program(*again, "--small-net", "--env-name", "CartPole-v1")[0] == 0
    status, _, err = program(*again)  # without flags that would be Pong
    assert status == 2
    assert "does not fit --env-name PongDeterministic-v4" in err


def test_a_branch_of_a_run_elsewhere_goes_beside_it(program):
    program.train("--max-gradient-updates", 2, "--save-every", 1, "--run-dir", "elsewhere/run")
    branch = ("--restore", "elsewhere/run/update-1.pth", "--workers", 0)
    assert program(*branch)[0] == 0
    assert [row["update"] for row in rows(Path("elsewhere/run-from-update-1"))] == ["2"]


def test_bare_weights_in_the_place_of_the_run_are_kept_and_can_be_repeated(program):
    program.train("--max-gradient-updates", 1)
    weights = read(RUN / "latest.pth").parameters
    for path in RUN.iterdir():
        path.unlink()
    torch.save(weights, RUN / "latest.pth")
    program.train("--restore", RUN / "latest.pth", "--max-gradient-updates", 1)
    first = read(RUN / "latest.pth")
    assert program("--config", RUN / "config.toml", "--run-dir", "again")[0] == 0
    assert same_run(read("again/latest.pth"), first)


def test_the_settings_file_of_a_changed_branch_repeats_it(program):
    program.train("--max-gradient-updates", 2, "--save-every", 1, "--run-dir", "old ü😀")
    program(
        "--restore", "old ü😀/update-1.pth", "--override", "--lr", 0.5, "--run-dir", "branch",
        "--max-gradient-updates", 3,
    )  # fmt: skip
    assert learning_rates(Path("branch")) == [0.5, 0.5]
    assert program("--config", "branch/config.toml", "--run-dir", "again")[0] == 0
    assert same_run(read("again/latest.pth"), read("branch/latest.pth"))
    status, out, _ = program("--test", "--no-render", "--config", "branch/config.toml")
    assert status == 0
    assert out.startswith("Episode 1: ")


def test_a_run_resumed_from_inside_still_knows_its_place(program, monkeypatch):
    program.train("--max-gradient-updates", 1, "--run-dir", "here")
    monkeypatch.chdir("here")
    assert program("--restore", "latest.pth", "--max-gradient-updates", 2)[0] == 0
    assert tomllib.loads(Path("config.toml").read_text())["run-dir"] == "here"


def test_a_checkpoint_does_not_choose_modules_to_import(program):
    slow = ("--env-name", "tests.slow:Slow-v0", "--small-net", "--max-episode-length", 1)
    more = ("--n", 2, "--workers", 0, "--max-gradient-updates", 1, "--run-dir", "run")
    assert program(*slow, *more)[0] == 0
    play = ("--test", "--no-render", "--episodes", 1, "--restore", "run/latest.pth")
    status, _, err = program(*play)
    assert status == 2
    assert "--env-name tests.slow:Slow-v0" in err
    assert program(*play, *slow[:2])[0] == 0
    checkpoint = read("run/latest.pth")
    checkpoint.environment["id"] = "this:CartPole-v1"
    save(checkpoint, Path("evil.pth"))
    status, out, _ = program(*play[:-1], "evil.pth", *slow[:2])
    assert "Zen" not in out


def test_an_older_run_is_kept(program):
    program.train("--max-gradient-updates", 1, "--sigma", 0.2)
    out = program.train("--max-gradient-updates", 2)
    assert f"{RUN} held another run: it is now {RUN}.1." in out
    assert read(f"{RUN}.1/latest.pth").settings["sigma"] == 0.2
    assert read(RUN / "latest.pth").settings["sigma"] == 0.05


def test_reaching_the_target_ends_the_run_before_the_step(program):
    """And the score can be played again: evaluation and test use the same episodes."""
    out = program.train(
        "--seed", 3, "--target-return", 40, "--max-gradient-updates", 50, "--eval-episodes", 6
    )
    last = out.splitlines()[-1]
    assert last.startswith("Solved: mean ")
    solved = read(RUN / "latest.pth")
    assert same(solved.parameters, read(RUN / "best.pth").parameters)
    assert solved.solved is not None
    mean, std = solved.solved["mean"], solved.solved["std"]
    assert mean >= 40
    assert solved.counters.update > 0
    assert f"mean {mean:.2f}, standard deviation {std:.2f} over 6 episodes" in last
    assert float(rows()[-1]["unperturbed_return"]) >= 40
    assert len(rows()) == solved.counters.update + 1
    _, played, _ = program(
        "--test", "--no-render", "--episodes", 6, "--restore", RUN / "latest.pth"
    )
    assert f"6 episodes: mean {mean:.2f}, standard deviation {std:.2f}" in played
    assert program("--restore", RUN / "latest.pth")[1].startswith("Finished already: ")


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
    solved = read(RUN / "latest.pth")
    assert solved.solved is not None
    assert len(rows()) == 5
    assert solved.counters.update == 4
    assert solved.counters.best_score == solved.solved["mean"]


def test_going_on_after_the_target_takes_the_step_that_was_left_out(program):
    options = ("--n", 20, "--max-gradient-updates", 12)
    program.train(*options, "--run-dir", "whole")
    program.train(*options, "--target-return", 30, "--eval-episodes", 3, "--run-dir", "parts")
    assert read("parts/latest.pth").solved
    program("--restore", "parts/latest.pth", "--target-return", "None", "--workers", 0)
    assert same_run(read("whole/latest.pth"), read("parts/latest.pth"))
    assert timeless(Path("whole")) == timeless(Path("parts"))


def test_missing_the_target_is_status_1(program):
    status, out, _ = program(
        *CARTPOLE, "--workers", 0, "--target-return", 501, "--max-gradient-updates", 2
    )
    assert status == 1
    assert out.splitlines()[-1].startswith("Target not reached: ")


def test_the_best_checkpoint_reproduces_its_score(program):
    program.train("--max-gradient-updates", 12)
    best, scores = read(RUN / "best.pth"), [float(row["unperturbed_return"]) for row in rows()]
    assert read(RUN / "latest.pth").counters.best_score == max(scores)
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
    assert read(RUN / "best.pth").counters.update == 3


def test_evaluations_decide_on_the_best_checkpoint(program):
    out = program.train("--max-gradient-updates", 6, "--eval-every", 2, "--eval-episodes", 3)
    assert out.count("Evaluation after ") == 3
    best = read(RUN / "best.pth")
    actor, env = make_actor(best.network), make_env(best.environment)
    actor.bind(flatten(best.network, best.parameters))
    returns = [
        rollout(env, actor, evaluation_seed(1, best.counters.update, index), 500).episode_return
        for index in range(3)
    ]
    assert np.mean(returns) == read(RUN / "latest.pth").counters.best_score
    assert f"Evaluation after {best.counters.update} updates: mean {np.mean(returns):.2f}" in out
    assert program("--restore", RUN / "latest.pth")[1].startswith("Finished already: ")


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
    assert read(RUN / "latest.pth").counters.max_episode_length == int(2 * lengths[-1])
    assert read(RUN / "latest.pth").settings["max_episode_length"] == 100_000


def test_silence(program):
    out = program.train("--max-gradient-updates", 2, "--silent")
    assert out.startswith("Finished: 2 updates")
    assert out.count("\n") == 1


def test_a_vector_environment_uses_the_mlp_and_says_so(program):
    _, out, _ = program(
        "--env-name", "Acrobot-v1", "--n", 2, "--workers", 0, "--max-gradient-updates", 1,
        "--max-episode-length", 20,
    )  # fmt: skip
    assert out.startswith("Acrobot-v1 has vector observations: using the MLP (--small-net).\n")
    assert "linear1.weight" in read("checkpoints/Acrobot-v1/latest.pth").parameters


def unreadable(program):
    program.train("--max-gradient-updates", 1, "--run-dir", "run")
    Path("empty.pth").write_bytes(b"")
    Path("bad.toml").write_text("lr = 'fast'")
    Path("file").write_text("")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--n 7", "--n 7"),
        ("--lr nan", "--lr nan"),
        ("--env-name Pnog-v5", "--env-name Pnog-v5"),
        ("--env-name Pendulum-v1 --small-net", "actions are Box"),
        ("--env-name PongDeterministic-v4 --small-net", "--small-net"),
        ("--restore missing.pth", "missing.pth"),
        ("--restore empty.pth", "empty.pth"),
        ("--restore run", "--restore run"),
        ("--restore run/latest.pth --env-name Acrobot-v1", "--env-name Acrobot-v1 differs"),
        (
            "--restore run/latest.pth --env-name Acrobot-v1 --override --max-gradient-updates 9",
            "does not fit",
        ),
        ("--restore run/latest.pth --seed 2", "--seed 2 differs"),
        ("--test", "--restore"),
        ("--test --restore run/latest.pth --env-name Acrobot-v1", "--env-name Acrobot-v1"),
        ("--config missing.toml", "missing.toml"),
        ("--config bad.toml", "lr = 'fast'"),
        ("--small-net --env-name CartPole-v1 --workers 0 --run-dir file/run", "--run-dir file/run"),
    ],
)
def test_bad_input_is_one_line_and_touches_nothing(program, arguments, words):
    unreadable(program)
    before = {path: path.is_file() and path.read_bytes() for path in Path().rglob("*")}
    status, out, err = program(*arguments.split())
    assert (status, out) == (2, "")
    assert err.startswith("error: ")
    assert words in err
    assert err.count("\n") == 1
    assert {path: path.is_file() and path.read_bytes() for path in Path().rglob("*")} == before
