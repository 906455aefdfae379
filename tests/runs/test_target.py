"""When --target-return is reached."""

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from es.config import Config
from es.interrupts import Interrupts
from es.runs.evaluator import Evaluator
from tests.checkpoints import RUN, read, rows, same, same_run, timeless
from tests.conftest import CARTPOLE


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
    second = solved.solved["second_mean"]
    assert f"mean {mean:.2f}, standard deviation {std:.2f} over 6 episodes, " in last
    assert f", mean {second:.2f} over as many others (target 40) after " in last
    assert last.endswith(f", saved as {RUN}/latest.safetensors")
    assert float(rows()[-1]["unperturbed_return"]) >= 40
    assert len(rows()) == solved.counters.update + 1
    _, played, _ = program(
        "--test", "--no-render", "--episodes", 6, "--restore", RUN / "latest.safetensors"
    )
    assert f"6 episodes: mean {mean:.2f}, standard deviation {std:.2f}" in played
    _, played, _ = program(
        "--test", "--json", "--episodes", 12, "--restore", RUN / "latest.safetensors"
    )
    assert np.mean(json.loads(played)["returns"][6:]) == second >= 40
    assert program("--restore", RUN / "latest.safetensors")[1].startswith("Finished already: ")


def test_a_lucky_episode_does_not_reach_the_target(program):
    """The unperturbed episode alone does not count: fresh ones must confirm it."""
    target = ("--seed", 36, "--n", 8, "--target-return", 100, "--max-gradient-updates", 15)
    status, out, _ = program(*CARTPOLE, "--workers", 0, *target)
    assert any(float(row["unperturbed_return"]) >= 100 for row in rows())
    assert float(re.findall(r"Evaluation after \d+ updates: mean ([\d.]+)", out)[0]) < 100
    assert status == 1
    assert len(rows()) == 15


def test_the_target_is_asked_for_by_the_mean_of_three_updates(program):
    """Also when the run is carried on; a few episodes show that a policy is far from it."""
    options = (*CARTPOLE, "--workers", 0, "--seed", 26, "--n", 8, "--target-return", 100)
    _, out, _ = program(*options, "--max-gradient-updates", 6, "--run-dir", "parts")
    restored = ("--restore", "parts/latest.safetensors", "--workers", 0)
    _, more, _ = program(*restored, "--max-gradient-updates", 15, "--target-return", 100)
    found = re.findall(r"Evaluation after (\d+) .* over (.*) fresh", out + more)
    returns = [float(row["unperturbed_return"]) for row in rows(Path("parts"))]
    smooth = [np.mean(returns[max(0, last - 2) : last + 1]) for last in range(15)]
    assert (
        [int(update) for update, _ in found]
        == [4, 5, 6]
        == list(np.nonzero(np.array(smooth) >= 100)[0])
    )
    assert [played for _, played in found] == ["the first 5 of 20", "20", "the first 5 of 20"]
    assert [row["episodes"] for row in rows(Path("parts"), "evaluations.csv")] == ["20"]


def test_a_lucky_evaluation_does_not_reach_the_target(program):
    """A second one must confirm the first, with other episodes."""
    target = ("--seed", 5, "--n", 8, "--target-return", 60, "--eval-episodes", 1)
    out = program.train(*target, "--max-gradient-updates", 40)
    found = re.findall(r"valuation after (\d+) updates?: mean ([\d.]+)", out)
    means = [(int(update), float(mean)) for update, mean in found]
    (before, lucky), (unlucky_before, unlucky), *_, (update, first), (confirmed, second) = means
    assert before == unlucky_before < update == confirmed
    assert unlucky < 60 <= min(lucky, first, second)
    assert read(RUN / "latest.safetensors").counters.update == update


@pytest.mark.parametrize(
    ("first", "target", "played"),
    [
        ([0, 0, 0, 0, 10], 5.9, [5, 15]),  # mean 2, and twice its standard error is 4
        ([0, 0, 0, 0, 10], 6.1, [5]),
        ([1.7e308] * 5, 5, [5, 15]),  # whose mean is infinite
    ],
)
def test_a_few_episodes_end_an_evaluation_that_two_standard_errors_do_not_save(
    monkeypatch, first, target, played
):
    run: Any = SimpleNamespace(
        config=Config(eval_episodes=20, target_return=target),
        strategy=SimpleNamespace(seed=1),
        monitor=SimpleNamespace(console=SimpleNamespace(say=lambda line: None)),
    )
    counts = []

    def play(self, tasks, name):
        counts.append(len(tasks))
        return [SimpleNamespace(episode_return=value) for value in (first * 3)[: len(tasks)]]

    monkeypatch.setattr(Evaluator, "_play", play)
    assert Evaluator(run, Interrupts()).reach_target([target], 3) is None
    assert counts == played


@pytest.mark.parametrize("episodes", [1, 2])
def test_a_cap_on_training_episodes_is_none_on_the_policy_itself(program, episodes):
    """The same is learned as with shorter episodes, but the policy's own are whole."""
    options = (
        *("--n", 8, "--seed", 1, "--obs-norm", "--max-gradient-updates", 6),
        *("--episodes-per-perturbation", episodes),
    )
    program.train(*options, "--training-ep-len", 20)
    program.train(*options, "--max-episode-length", 20, "--run-dir", "short")
    ours, short = timeless(RUN), timeless(Path("short"))
    whole = [float(row.pop("unperturbed_return")) for row in ours]
    capped = [float(row.pop("unperturbed_return")) for row in short]
    assert ours == short  # the rank is one among equally long episodes
    learned = [read(directory / "latest.safetensors") for directory in (RUN, Path("short"))]
    assert same(*(checkpoint.parameters for checkpoint in learned))
    assert same(*(checkpoint.normalizer for checkpoint in learned))
    assert max(capped) <= 20 < max(whole)
    if episodes == 1:  # whose return is its length
        assert [min(20, length) for length in whole] == capped


def test_a_target_beyond_the_cap_of_training_episodes_is_reached(program):
    target = ("--target-return", 60, "--eval-episodes", 6, "--max-gradient-updates", 60)
    out = program.train("--seed", 3, "--training-ep-len", 40, *target)
    assert out.splitlines()[-1].startswith("Solved: mean ")


def test_an_evaluation_that_falls_due_with_the_solution_changes_nothing(program):
    """The update that solves the task is the 5th, after which one would be due."""
    options = ("--seed", 33, "--target-return", 40, "--max-gradient-updates", 9)
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
    *_, advice, carry_on, watch, _, last = out.splitlines()
    assert advice == "So few updates show no trend: carry on with a higher limit:"
    assert carry_on.endswith(f" --max-gradient-updates 4 --restore {RUN}/latest.safetensors")
    assert watch == "Watch it:"
    assert last.startswith("Target not reached: ")
    assert last.endswith(f", saved as {RUN}/latest.safetensors")
