"""The race of benchmarks.solve, without the libraries that it compares with."""

import json
import re
import subprocess
import sys

import numpy as np
import pytest

from benchmarks import solve, solvers
from benchmarks.judge import Job, Judge, Over
from benchmarks.solve import EVALUATION, Outcome
from tests.processes import ROOT


def test_a_judge_ends_the_race_when_a_hundred_episodes_are_at_the_target():
    job = Job("CartPole-v1", 0, {})
    left = Judge(job, 500, 1e9)
    left(lambda observations: np.zeros(len(observations), int))
    assert not left.solved
    right = Judge(job, 150, 1e9)
    with pytest.raises(Over):
        right(lambda observations: (observations[:, 2] + observations[:, 3] > 0).astype(int))
    assert right.solved
    late = Judge(job, 500, 0)
    with pytest.raises(Over):
        late(lambda observations: np.zeros(len(observations), int))
    assert not late.solved


def test_evaluations_do_not_count(program, monkeypatch):
    """The lines of a run tell how long they took."""
    _, out, _ = program(
        "--env-name", "CartPole-v1", "--small-net", "--n", 4, "--workers", 0, "--seed", 3,
        "--target-return", 9, "--eval-episodes", 5, "--max-gradient-updates", 3,
    )  # fmt: skip
    assert len(EVALUATION.findall(out)) == 2
    outcome = json.dumps({"solved": True, "judging": 1.5})
    start, clock = subprocess.Popen, iter([10.0, 14.0])
    command = [sys.executable, "-c", f"print('{outcome}')"]
    monkeypatch.setattr(subprocess, "Popen", lambda _, **more: start(command, **more))
    monkeypatch.setattr("benchmarks.solve.time.perf_counter", lambda: next(clock))
    measured = solve.measure("CartPole-v1", "ppo", 0, 60)
    assert measured == Outcome("CartPole-v1", "ppo", 0, solved=True, seconds=2.5)


def test_a_row_has_medians_and_says_what_was_not_solved(tmp_path, monkeypatch):
    monkeypatch.setattr(solve, "OUTCOMES", tmp_path / "solve.csv")
    solve.OUTCOMES.write_text(f"{','.join(Outcome._fields)}\n")
    for outcome in (
        Outcome("A", "ours", 0, True, 3), Outcome("A", "ours", 1, True, 2),
        Outcome("A", "ours", 2, True, 9), Outcome("A", "ppo", 0, True, 6),
        Outcome("A", "ppo", 1, False, 4), Outcome("A", "ppo", 2, True, 12),
        Outcome("A", "ars", 0, False, 60), Outcome("B", "evosax", 0, True, 1),
    ):  # fmt: skip
        solve.keep(outcome)
    assert (
        solve.row("A") == "| A | 3 s | 12 s, 4 times (2 of 3) | > 60 s, 20 times (0 of 1) | - | - |"
    )


def test_the_settings_are_of_our_tasks():
    tasks = {path.stem for path in (ROOT / "configs").glob("*.toml")}
    text = (ROOT / "benchmarks" / "solvers.toml").read_text()
    assert set(re.findall(r'^\[\w+\."(.+)"\]$', text, re.MULTILINE)) <= tasks
    for library in solvers.LEARNERS:
        assert solvers.settings_of(library, "CartPole-v1")
    assert solvers.settings_of("ppo", "Pusher-v5") is None
    assert solvers.settings_of("evotorch", "Pusher-v5")
    assert solvers.settings_of("evotorch", "CyclicMDP-v0") is None  # not Gymnasium's
