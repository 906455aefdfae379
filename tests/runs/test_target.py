"""When --target-return is reached."""

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from es.algorithm.noise import Stream, derive_seeds
from es.checkpoint import Counters, save
from es.config import Config
from es.errors import Interrupts
from es.policy import describe
from es.rollouts.episode import rollout
from es.runs.evaluator import Evaluator
from es.runs.finish import target_due
from tests.checkpoints import RUN, read, rows, same, same_run, timeless
from tests.conftest import CARTPOLE
from tests.fakes import results


def test_reaching_the_target_ends_the_run_with_these_parameters(program):
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
    assert np.mean([float(row["unperturbed_return"]) for row in rows()[-3:]]) >= 40
    assert len(rows()) == solved.counters.update
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


def test_the_policy_is_evaluated_when_the_mean_of_three_returns_reaches_the_target(program):
    """And again when the mean is higher. It is the same if the run is interrupted between them."""
    options = (*CARTPOLE, "--workers", 0, "--seed", 35, "--n", 8, "--target-return", 100)
    _, whole, _ = program(*options, "--max-gradient-updates", 15, "--run-dir", "whole")
    _, out, _ = program(*options, "--max-gradient-updates", 8, "--run-dir", "parts")
    restored = ("--restore", "parts/latest.safetensors", "--workers", 0)
    _, more, _ = program(*restored, "--max-gradient-updates", 15)
    returns = [float(row["unperturbed_return"]) for row in rows(Path("whole"))]
    means = {last: float(np.mean(returns[last - 3 : last])) for last in range(3, 16)}
    expected, highest = [], 0.0
    for update, mean in means.items():
        if mean >= 100 and mean > highest:
            expected.append(update)
            highest = mean
    assert len(expected) < sum(mean >= 100 for mean in means.values())
    for text in (whole, out + more):
        found = re.findall(r"Evaluation after (\d+) .* over (.*) fresh", text)
        assert [int(update) for update, _ in found] == expected == [7, 10, 15]
        few = "the first 5 of 20"  # which show that the policy is far from the target
        assert [played for _, played in found] == [few, "20", few]
    assert same_run(read("whole/latest.safetensors"), read("parts/latest.safetensors"))
    assert [row["episodes"] for row in rows(Path("parts"), "evaluations.csv")] == ["20"]


@pytest.mark.parametrize(
    ("recent", "missed", "due"),
    [
        ([9.0, 9.0], None, False),
        ([9.0, 9.0, 9.0], None, True),
        ([9.0, 9.0, 2.0], None, False),
        ([1.7e308] * 3, None, False),  # whose mean is infinite
        ([9.0, 9.0, 9.0], (29, 8.0), True),
        ([9.0, 9.0, 9.0], (29, 9.0), False),
        ([9.0, 9.0, 9.0], (21, 9.0), False),
        ([9.0, 9.0, 9.0], (20, 9.0), True),
    ],
)
def test_an_evaluation_is_due_at_a_higher_mean_or_ten_updates_after_a_miss(recent, missed, due):
    counters = Counters(30, 0, 0, 0.0, 1, None, 0.1, 0.1, recent=recent)
    if missed:
        counters = counters._replace(missed_update=missed[0], missed_return=missed[1])
    assert target_due(Config(target_return=7.0), counters) is due
    assert not target_due(Config(), counters)


def test_a_run_at_its_limit_is_evaluated_for_a_target_that_is_new(program):
    program.train("--max-gradient-updates", 3)
    target = ("--target-return", 5, "--eval-episodes", 3, "--workers", 0)
    status, out, _ = program("--restore", RUN, *target)
    assert status == 0
    assert out.splitlines()[-1].startswith("Solved: mean ")
    assert len(rows()) == 3


def test_a_lucky_evaluation_does_not_reach_the_target(program):
    """A second one must confirm the first, with other episodes."""
    target = ("--seed", 28, "--n", 8, "--target-return", 60, "--eval-episodes", 1)
    out = program.train(*target, "--max-gradient-updates", 40)
    found = re.findall(r"valuation after (\d+) updates?: mean ([\d.]+)", out)
    means = [(int(update), float(mean)) for update, mean in found]
    _, (before, lucky), (unlucky_before, unlucky), *_, (update, first), (confirmed, second) = means
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
    first, target, played
):
    counts: list[int] = []
    run: Any = SimpleNamespace(
        config=Config(eval_episodes=20, target_return=target),
        strategy=SimpleNamespace(seed=1, theta=None, sigma=1.0, relative_sigma=None),
        normalizer=None,
        monitor=SimpleNamespace(
            console=SimpleNamespace(
                say=lambda line: None, begin=lambda *words: None, progress=lambda done: None
            )
        ),
        pool=SimpleNamespace(
            submit=lambda snapshot, tasks: counts.append(len(tasks)),
            results=lambda progress: results((first * 3)[: counts[-1]]),
        ),
    )
    assert Evaluator(run, Interrupts()).reach_target(3) is None
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


@pytest.mark.parametrize("limit", ["--variable-ep-len", "--adaptive-ep-len"])
def test_the_policys_own_return_is_that_of_a_whole_episode_under_a_moving_cap(program, limit):
    """Pendulum's rewards are negative: a shorter episode would look better."""
    program(
        "--env-name", "Pendulum-v1", "--n", 4, "--workers", 0, "--seed", 1, "--run-dir", "run",
        "--max-gradient-updates", 1, limit,
    )  # fmt: skip
    latest = read("run/latest.safetensors")
    counters = latest.counters._replace(max_episode_length=20)
    save(latest._replace(counters=counters), Path("run/latest.safetensors"))
    program("--restore", "run", "--workers", 0, "--max-gradient-updates", 2)
    row = rows(Path("run"))[-1]
    assert float(row["episode_length_mean"]) == 20
    assert latest.config
    setup, theta = describe(latest.config, latest)
    actor, env = setup.recipe.make_actor(), setup.recipe.make_env()
    actor.bind(theta)
    *_, seed = derive_seeds(1, 1, Stream.EPISODE, 3)
    assert float(row["unperturbed_return"]) == rollout(env, actor, seed, 200).episode_return


def test_a_target_beyond_the_cap_of_training_episodes_is_reached(program):
    target = ("--target-return", 60, "--eval-episodes", 6, "--max-gradient-updates", 60)
    out = program.train("--seed", 3, "--training-ep-len", 40, *target)
    assert out.splitlines()[-1].startswith("Solved: mean ")


def test_an_evaluation_that_falls_due_with_the_solution_changes_nothing(program):
    """The task is solved after the 5th update, after which one is due."""
    options = ("--seed", 33, "--target-return", 40, "--max-gradient-updates", 9)
    out = program.train(*options, "--eval-every", 5)
    assert out.count("Evaluation after 5 updates: ") == 1
    solved = read(RUN / "latest.safetensors")
    assert solved.solved is not None
    assert len(rows()) == solved.counters.update == 5
    assert [row["update"] for row in rows(table="evaluations.csv")] == ["5"]
    assert solved.counters.best_score == solved.solved["mean"]


def test_going_on_after_the_target_is_as_if_there_had_been_none(program):
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
