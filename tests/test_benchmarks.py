"""The tables that benchmarks keep."""

from benchmarks.learn import Outcome, learn_row, write_row

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


def test_a_row_has_independent_scores_first():
    outcomes = [Outcome(True, 40_000, 1.2, 499.5), Outcome(False, 100_001, 9, 80)]
    outcomes.append(Outcome(True, 50_000, 3.4, 490))
    row = learn_row("CartPole-v1", {"target-return": 500, "max-frames": 100_000}, outcomes)
    steps = "50,000 | 40,000 to 100,001"
    assert row == (f"| CartPole-v1 | 500 | 1e5 | 490 | 80 | 2 of 3 | {steps} | 3 | ARS 500 @ 5e4 |")
