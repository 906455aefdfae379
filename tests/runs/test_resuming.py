"""Runs that are carried on or branched off, through the command line."""

import os
import signal
import tomllib
from pathlib import Path

import pytest
import torch

from es.rollouts.processes import PRELOAD
from tests.checkpoints import RUN, read, rows, same, same_run, timeless
from tests.conftest import CARTPOLE


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
        "--restore", "parts/latest.safetensors", "--max-gradient-updates", 20, "--workers", 0
    )
    assert (status, err) == (0, "")
    assert "Episode num: 40\n" in out
    assert same_run(read("whole/latest.safetensors"), read("parts/latest.safetensors"))
    assert same(
        read("whole/best.safetensors").parameters, read("parts/best.safetensors").parameters
    )
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
    program("--restore", "parts/latest.safetensors", "--max-gradient-updates", 3)
    assert any(float(row["grad_norm"]) > 0 for row in rows(Path("parts"))[1:])
    assert same_run(read("whole/latest.safetensors"), read("parts/latest.safetensors"))
    status, out, _ = program(
        "--test", "--no-render", "--episodes", 1, "--restore", "parts/best.safetensors"
    )
    assert status == 0
    assert out.startswith("Episode 1: reward ")


def test_a_directory_is_carried_on_from_its_latest_checkpoint(program):
    program.train("--max-gradient-updates", 1)
    assert program("--restore", f"{RUN}/", "--max-gradient-updates", 3, "--workers", 0)[0] == 0
    assert [row["update"] for row in rows()] == ["1", "2", "3"]


def test_a_run_killed_between_its_row_and_its_checkpoint_carries_on(program):
    program.train("--max-gradient-updates", 5, "--run-dir", "whole")
    program.train("--max-gradient-updates", 3, "--save-every", 2, "--run-dir", "parts")
    Path("parts/update-2.safetensors").replace("parts/latest.safetensors")
    program("--restore", "parts/latest.safetensors", "--max-gradient-updates", 5)
    assert timeless(Path("whole")) == timeless(Path("parts"))
    assert same_run(read("whole/latest.safetensors"), read("parts/latest.safetensors"))


def test_a_best_checkpoint_that_is_missing_does_not_stay_so(program):
    program.train("--max-gradient-updates", 5)
    (RUN / "best.safetensors").unlink()
    assert program("--restore", RUN / "latest.safetensors", "--max-gradient-updates", 8)[0] == 0
    assert read(RUN / "best.safetensors").counters.update >= 5


def test_a_finished_run_says_so(program):
    program.train("--max-gradient-updates", 2)
    before = {path: path.read_bytes() for path in RUN.iterdir()}
    status, out, err = program("--restore", RUN / "latest.safetensors")
    assert (status, err) == (0, "")
    told = f"the run of {RUN}/latest.safetensors has reached 2 updates (--max-gradient-updates)"
    assert out == f"Finished already: {told}: raise that to carry on.\n"
    assert {path: path.read_bytes() for path in RUN.iterdir()} == before


def test_another_checkpoint_starts_a_new_run_beside_the_old_one(program):
    program.train("--max-gradient-updates", 6, "--save-every", 2)
    before = {path: path.read_bytes() for path in RUN.iterdir()}
    update = RUN / "update-4.safetensors"
    branch = ("--restore", update, "--max-gradient-updates", 6, "--workers", 0)
    assert program(*branch)[0] == 0
    fresh = RUN.with_name("CartPole-v1-from-update-4")
    assert [row["update"] for row in rows(fresh)] == ["5", "6"]
    assert same(
        read(fresh / "latest.safetensors").parameters, read(RUN / "latest.safetensors").parameters
    )
    assert program(*branch, "--run-dir", "mine")[0] == 0
    assert same_run(read("mine/latest.safetensors"), read(fresh / "latest.safetensors"))
    assert program(*branch, "--run-dir", RUN)[0] == 2
    assert {path: path.read_bytes() for path in RUN.iterdir()} == before


def test_a_bare_state_dict_restores_the_weights_alone(program):
    program.train("--max-gradient-updates", 2, "--run-dir", "old")
    weights = read("old/latest.safetensors").parameters
    torch.save(weights, "weights.pth")
    status, _out, _ = program(
        *CARTPOLE, "--workers", 0, "--restore", "weights.pth", "--max-gradient-updates", 1,
        "--sigma", 1e-9,
    )  # fmt: skip
    assert status == 0
    assert [row["update"] for row in rows()] == ["1"]
    for name, tensor in read(RUN / "best.safetensors").parameters.items():
        torch.testing.assert_close(tensor, weights[name])
    again = ("--test", "--no-render", "--episodes", 1, "--restore", "weights.pth", "--seed", 1)
    assert program(*again, "--small-net", "--env-name", "CartPole-v1")[0] == 0
    status, _, err = program(*again)  # without flags that would be Pong
    assert status == 2
    assert "does not fit --env-name PongDeterministic-v4" in err


def test_a_branch_of_a_run_elsewhere_goes_beside_it(program):
    program.train("--max-gradient-updates", 2, "--save-every", 1, "--run-dir", "elsewhere/run")
    branch = ("--restore", "elsewhere/run/update-1.safetensors", "--workers", 0)
    assert program(*branch)[0] == 0
    assert [row["update"] for row in rows(Path("elsewhere/run-from-update-1"))] == ["2"]


def test_bare_weights_in_the_place_of_the_run_are_kept_and_can_be_repeated(program):
    program.train("--max-gradient-updates", 1)
    weights = read(RUN / "latest.safetensors").parameters
    for path in RUN.iterdir():
        path.unlink()
    torch.save(weights, RUN / "latest.safetensors")
    program.train("--restore", RUN / "latest.safetensors", "--max-gradient-updates", 1)
    first = read(f"{RUN}.2/latest.safetensors")
    assert program("--config", f"{RUN}.2/config.toml", "--run-dir", "again")[0] == 0
    assert same_run(read("again/latest.safetensors"), first)


def test_a_run_resumed_from_inside_still_knows_its_place(program, monkeypatch):
    program.train("--max-gradient-updates", 1, "--run-dir", "here")
    monkeypatch.chdir("here")
    assert program("--restore", "latest.safetensors", "--max-gradient-updates", 2)[0] == 0
    assert tomllib.loads(Path("config.toml").read_text())["run-dir"] == "here"


def test_a_checkpoint_does_not_choose_modules_to_import(program):
    slow = ("--env-name", "tests.slow:Slow-v0", "--small-net", "--max-episode-length", 1)
    more = ("--n", 2, "--workers", 0, "--max-gradient-updates", 1)
    assert program(*slow, *more)[0] == 0
    latest = "checkpoints/tests.slow.Slow-v0/latest.safetensors"  # scp takes a colon for a host
    play = ("--test", "--no-render", "--episodes", "1", "--restore", latest)
    status, _, err = program(*play)
    assert status == 2
    assert err.endswith(
        "would import a module. Give --trust if you know where the file comes from\n"
    )
    assert program(*play, "--trust")[::2] == (0, "")
    assert program(*play, *slow[:2])[::2] == (0, "")


def test_a_resumed_run_prepares_its_workers_for_the_environment_of_its_checkpoint(
    program, monkeypatch
):
    prepared: list[str] = []

    def start(modules):
        prepared.append(os.environ[PRELOAD])

    monkeypatch.setattr("es.cli.start_forkserver", start)
    monkeypatch.setenv(PRELOAD, "")  # the program sets it
    program.train("--max-gradient-updates", 1)
    assert program("--restore", RUN)[0] == 0  # it has finished; its workers setting of 0 is kept
    assert prepared == []
    assert program("--restore", RUN, "--workers", 2)[0] == 0
    assert prepared == ["CartPole-v1"]


def test_an_interrupt_while_noise_is_summed_does_not_wait_and_loses_no_update(program, monkeypatch):
    program.train("--max-gradient-updates", 2, "--run-dir", "whole")
    program.train("--max-gradient-updates", 1, "--run-dir", "parts")
    carried_on = ("--restore", "parts", "--workers", 0, "--max-gradient-updates", 2)

    def sum_for_long(*arguments, **settings):
        os.kill(os.getpid(), signal.SIGINT)
        raise AssertionError("the sum went on")

    with monkeypatch.context() as patch:
        patch.setattr("es.runs.start.weighted_sum", sum_for_long)
        status, out, _ = program(*carried_on)
    assert status == 130
    assert "\nInterrupted after 1 update," in out
    assert program(*carried_on)[0] == 0
    assert same_run(read("whole/latest.safetensors"), read("parts/latest.safetensors"))
    assert timeless(Path("whole")) == timeless(Path("parts"))
