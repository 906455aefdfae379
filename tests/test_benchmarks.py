"""The tables that benchmarks keep."""

from subprocess import CompletedProcess

import pytest

from benchmarks.learn import Outcome, ended, learn_row, rules_of_score, threshold, write_row

TEXT = """\
before
<!-- learn -->
| name | score |
|---|---|
| Ant | 1 |
| Swimmer | 2 |
<!-- end of learn -->
after
"""


def test_a_row_is_replaced_or_sorted_in(tmp_path):
    page = tmp_path / "page.md"
    for row, expected in (
        ("| Ant | 3 |", TEXT.replace("| Ant | 1 |", "| Ant | 3 |")),
        ("| Hopper | 3 |", TEXT.replace("| Swimmer", "| Hopper | 3 |\n| Swimmer")),
    ):
        page.write_text(TEXT)
        write_row(page, "learn", row)
        assert page.read_text() == expected


def test_a_row_counts_the_seeds_whose_independent_score_is_at_the_threshold():
    outcomes = [
        Outcome("CartPole-v1", 100, "abc", 40_000, 60_000, 1.2, 499.5, 1.0),
        Outcome("CartPole-v1", 101, "abc", 100_001, 140_000, 9.0, 80.0, 2.0),
        Outcome("CartPole-v1", 102, "abc", 50_000, 70_000, 3.4, 490.0, 3.0),
    ]
    assert learn_row("CartPole-v1", outcomes) == (
        "| CartPole-v1 | 475 (Gymnasium) | 2 of 3 | 490 | 80 to 499.5 | 2e5 | 50,000 "
        "| 40,000 to 100,001 | 70,000 | ARS 500 @ 5e4; DQN 500 @ 5e4 |"
    )


@pytest.mark.parametrize(
    ("task", "env_name", "expected"),
    [
        ("Hopper-v5", "Hopper-v5", (3800, "Gymnasium")),
        ("Walker2d-v5", "Walker2d-v5", (5232, "ClipUp, v2")),
        ("CyclicMDP-v0", "CyclicMDP-v0", None),
    ],
)
def test_a_threshold_is_that_of_gymnasium_or_a_published_score(task, env_name, expected):
    assert threshold(task, env_name) == expected


def test_a_score_is_by_the_rules_of_the_last_phase_that_changes_them(tmp_path):
    config = tmp_path / "easier.toml"
    config.write_text(
        "env-name = 'Humanoid-v5'\nenv-kwargs = ['forward_reward_weight=6', 'frame_skip=4']\n"
        "[[phase]]\nafter-updates = 1\nenv-kwargs = ['frame_skip=4']\nenv-wrapper = ['a:B']\n"
        "[[phase]]\nafter-updates = 2\nenv-wrapper = []\n"
        "[[phase]]\nafter-updates = 3\nsigma = 0.01\n"
    )
    assert rules_of_score(config) == ["--env-kwargs", "frame_skip=4", "--env-wrapper"]
    config.write_text("env-name = 'Humanoid-v5'\nenv-kwargs = ['frame_skip=4']\n")
    assert rules_of_score(config) == []  # the checkpoint has them


@pytest.mark.parametrize(
    ("status", "out", "expected"),
    [
        (0, "Solved: mean 500", True),
        (1, "update 1\nTarget not reached: no mean return of 475 in 1 update", True),
        (1, "update 1", False),  # a traceback or an error, which stand in standard error
        (1, "", False),
        (2, "", False),
    ],
)
def test_a_failed_run_is_not_taken_for_one_that_missed_its_target(status, out, expected):
    assert ended(CompletedProcess([], status, out, "")) is expected
