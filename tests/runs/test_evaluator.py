"""Evaluations, and the best checkpoint."""

from itertools import islice
from pathlib import Path

import numpy as np

from es.algorithm.noise import Stream, derive_seeds
from es.policy import describe
from es.reports.terminal import Terminal
from es.rollouts.episode import rollout
from es.rollouts.tasks import evaluation_seeds
from tests.checkpoints import RUN, read, rows, timeless


def test_the_best_checkpoint_reproduces_its_score(program):
    program.train("--max-gradient-updates", 12)
    best = read(RUN / "best.safetensors")
    scores = [float(row["unperturbed_return"]) for row in rows()]
    assert read(RUN / "latest.safetensors").counters.best_score == max(scores)
    # Ties: the later. An update's unperturbed episode is played by the parameters before it.
    update = max(index for index, score in enumerate(scores) if score == max(scores))
    assert best.counters.update == update
    assert best.config
    setup, theta = describe(best.config, best)
    actor = setup.recipe.make_actor()
    actor.bind(theta)
    *_, seed = derive_seeds(1, update, Stream.EPISODE, 3)
    assert rollout(setup.recipe.make_env(), actor, seed, 500).episode_return == max(scores)


def test_of_equal_scores_the_later_is_the_best(program):
    program.train("--max-gradient-updates", 4, "--max-episode-length", 5)
    assert {row["unperturbed_return"] for row in rows()} == {"5.0"}
    assert read(RUN / "best.safetensors").counters.update == 3


def test_every_evaluation_is_a_row(program):
    """Those of --eval-every, and those of --target-return, here the last; also when carried on."""
    options = ("--seed", 19, "--eval-every", 2, "--eval-episodes", 3, "--max-gradient-updates")
    program.train(*options, 5, "--run-dir", "parts")
    carried_on = ("--restore", "parts/latest.safetensors", "--workers", 0, "--target-return", 40)
    program(*carried_on, "--max-gradient-updates", 9)
    program.train(*options, 9, "--target-return", 40, "--run-dir", "whole")
    found = rows(Path("whole"), "evaluations.csv")
    solved = read("whole/latest.safetensors")
    assert [row["update"] for row in found] == ["2", "4", "6", "7"]
    assert solved.counters.update == 7
    for row in found:
        returns = [float(each) for each in row["returns"].split()]
        figures = [float(row[name]) for name in ("episodes", "min", "max")]
        assert [len(returns), min(returns), max(returns)] == figures
        update = rows(Path("whole"))[int(row["update"]) - 1]
        assert all(row[name] == update[name] for name in ("frames", "wall_seconds"))
    assert solved.solved
    assert float(found[-1]["mean"]) == solved.solved["mean"]
    assert timeless(Path("parts"), "evaluations.csv") == timeless(Path("whole"), "evaluations.csv")


def test_evaluations_decide_on_the_best_checkpoint(program):
    out = program.train("--max-gradient-updates", 6, "--eval-every", 2, "--eval-episodes", 3)
    assert out.count("Evaluation after ") == 3
    best = read(RUN / "best.safetensors")
    assert best.config
    setup, theta = describe(best.config, best)
    actor, env = setup.recipe.make_actor(), setup.recipe.make_env()
    actor.bind(theta)
    returns = [
        rollout(env, actor, seed, 500).episode_return
        for seed in islice(evaluation_seeds(1, best.counters.update), 3)
    ]
    assert np.mean(returns) == read(RUN / "latest.safetensors").counters.best_score
    assert f"Evaluation after {best.counters.update} updates: mean {np.mean(returns):.2f}" in out
    assert program("--restore", RUN / "latest.safetensors")[1].startswith("Finished already: ")


def test_a_policy_is_evaluated_again_where_scores_no_longer_compare(program):
    program.train("--max-gradient-updates", 2, "--eval-every", 2, "--eval-episodes", 3)
    again = ("--restore", RUN, "--override", "--max-episode-length", 7, "--workers", 0)
    _, out, _ = program(*again, "--max-gradient-updates", 3)
    assert "Evaluation after 2 updates: mean 7.00" in out
    best = read(RUN / "best.safetensors")
    assert best.config
    assert (best.counters.best_score, best.config.max_episode_length) == (7.0, 7)


def test_a_batch_that_is_played_in_parts_is_counted_as_one(program, monkeypatch):
    """An evaluation for --target-return, and an update of --frames-per-update."""
    totals: dict[str, list[int]] = {}
    counts: dict[str, list[int]] = {}

    def begin(terminal, name, episodes):
        totals.setdefault(name, []).append(episodes)
        terminal.name = name

    def progress(terminal, done):
        counts.setdefault(terminal.name, []).append(done)

    monkeypatch.setattr(Terminal, "begin", begin)
    monkeypatch.setattr(Terminal, "progress", progress)
    program.train("--target-return", 5, "--eval-episodes", 10)
    first = next(name for name in totals if name.startswith("evaluation"))
    assert totals[first] == [10, 10]
    assert counts[first][-1] == 10
    assert counts[first] == sorted(counts[first])
    program.train("--frames-per-update", 2000, "--max-gradient-updates", 1)
    assert len(totals["update 1"]) > 2  # of this run, after the other's
    assert counts["update 1"][-1] == totals["update 1"][-1]
