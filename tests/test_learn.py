"""The table that benchmarks/learn.py keeps."""

from benchmarks.learn import Outcome, row_of, with_row

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


def test_a_row_takes_the_place_of_an_earlier_one():
    assert with_row(TEXT, "learn", "| Ant | 3 |") == TEXT.replace("| Ant | 1 |", "| Ant | 3 |")


def test_a_new_row_is_sorted_in():
    text = with_row(TEXT, "learn", "| Hopper | 3 |")
    assert text == TEXT.replace("| Swimmer", "| Hopper | 3 |\n| Swimmer")


def test_a_row_says_how_many_seeds_came_to_the_target():
    outcomes = [
        Outcome(True, 40_000, 1.234, 499.5),
        Outcome(False, 100_001, 9, 80),
        Outcome(True, 50_000, 3.4, 490),
    ]
    settings = {"target-return": 500, "max-frames": 100_000}
    assert row_of("CartPole-v1", settings, outcomes) == (
        "| CartPole-v1 | 500 | 1e5 | 2 of 3 | 50,000 | 40,000 to 100,001 | 3 | 490 | 80 "
        "| ARS 500 @ 5e4 |"
    )
