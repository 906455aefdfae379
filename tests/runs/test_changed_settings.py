"""Runs that are carried on with other settings than they began with."""

import shlex
from pathlib import Path

import pytest

from tests.checkpoints import RUN, read, rows, same_run, settings
from tests.conftest import CARTPOLE


def test_a_different_setting_is_an_error_unless_overridden(program):
    program.train("--max-gradient-updates", 2)
    again = ("--restore", RUN / "latest.safetensors", "--max-gradient-updates", 3)
    status, out, err = program(*again, "--lr", 0.5)
    assert (status, out) == (2, "")
    assert "--lr 0.5 differs from the checkpoint's 0.1" in err
    assert "--override" in err
    status, out, _ = program(*again, "--lr", 0.5, "--override", "--workers", 1)
    assert status == 0
    assert "Learning rate: 0.500000" in out
    assert settings(RUN / "latest.safetensors").lr == 0.5
    # Overriding is not inherited.
    assert program(*again[:-1], 4, "--lr", 0.7)[0] == 2


def learning_rates(directory=RUN):
    return [float(row["lr"]) for row in rows(directory)]


def test_an_override_of_rate_or_decay_holds_from_then_on(program):
    program.train("--lr-decay", 0.5, "--max-gradient-updates", 3)
    again = ("--override", "--workers", 0, "--restore", RUN / "latest.safetensors")
    program(*again, "--lr-decay", 0.1, "--max-gradient-updates", 5)
    program(*again, "--lr", 7, "--max-gradient-updates", 7)
    expected = [0.1, 0.05, 0.025, 0.0125, 0.00125, 7, 0.7]
    assert learning_rates() == pytest.approx(expected)


def test_the_settings_of_a_run_that_was_changed_do_not_say_that_they_repeat_it(program):
    program.train("--max-gradient-updates", 2)
    assert "repeat it with --config" in (RUN / "config.toml").read_text()
    again = ("--workers", 0, "--restore", RUN, "--max-gradient-updates")
    program(*again, 3, "--lr", 0.5, "--sigma", 0.02, "--override")
    program(*again, 4)
    program(*again, 5, "--lr", 0.1, "--env-kwargs", "sutton_barto_reward=False", "--override")
    text = (RUN / "config.toml").read_text()
    assert text.splitlines()[:3] == [
        "# The last settings of this run, which do not repeat it. Before, it had others:",
        "# until update 2: --sigma 0.05, --lr 0.1",
        "# until update 4: --env-kwargs, --lr 0.5",
    ]
    # A branch starts from a checkpoint, and its settings repeat it from there.
    (RUN / "latest.safetensors").rename(RUN / "mine.safetensors")
    program("--restore", RUN / "mine.safetensors", "--workers", 0, "--max-gradient-updates", 6)
    branch = RUN.with_name("CartPole-v1-from-mine")
    assert "repeat it with --config" in (branch / "config.toml").read_text()


def test_an_override_may_change_the_optimiser(program):
    program.train("--max-gradient-updates", 2, "--lr", 0.01)
    again = ("--restore", RUN / "latest.safetensors", "--max-gradient-updates", 5)
    assert program(*again, "--useAdam", "--override")[0] == 0
    assert "exp_avg" in read(RUN / "latest.safetensors").optimizer


def test_the_settings_file_of_a_changed_branch_repeats_it(program, monkeypatch):
    """Also once the branch was carried on, and from another folder."""
    program.train("--max-gradient-updates", 2, "--save-every", 1, "--run-dir", "old ü😀")
    program(
        "--restore", "old ü😀/update-1.safetensors", "--override", "--lr", 0.5,
        "--run-dir", "branch", "--max-gradient-updates", 3,
    )  # fmt: skip
    program("--restore", "branch", "--max-gradient-updates", 4)
    assert learning_rates(Path("branch")) == [0.5, 0.5, 0.5]
    branch, elsewhere = Path("branch").resolve(), Path("elsewhere")
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert program("--config", branch / "config.toml", "--run-dir", "again")[::2] == (0, "")
    assert same_run(read("again/latest.safetensors"), read(branch / "latest.safetensors"))
    status, out, _ = program("--test", "--no-render", "--config", branch / "config.toml")
    assert status == 0
    assert out.startswith("Episode 1: ")


def test_returns_of_another_environment_ask_for_no_target(program):
    program.train("--max-gradient-updates", 3)
    assert read(RUN / "latest.safetensors").counters.recent
    other = ("--override", "--env-kwargs", "sutton_barto_reward=True", "--target-return", 5)
    again = ("--restore", RUN, "--workers", 0, "--max-gradient-updates", 5)
    _, out, _ = program(*again, *other)
    assert "valuation after" not in out  # every return is -1 at most
    assert len(read(RUN / "latest.safetensors").counters.recent) == 2


def test_the_advice_after_a_missed_target_can_be_followed(program):
    """Also where the schedule of the learning rate depends on the number of updates."""
    few = ("--target-return", 501, "--max-gradient-updates", 2, "--lr-schedule", "linear")
    _, out, _ = program(*CARTPOLE, "--workers", 0, *few)
    words = shlex.split(out.partition("carry on with a higher limit:\n")[2].splitlines()[0])
    status, out, _ = program(*words[words.index("--max-gradient-updates") :], "--workers", 0)
    assert (status, len(rows())) == (1, 4)
