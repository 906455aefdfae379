"""Whole programs: interruptions, sudden deaths, the terminal, start-up from another folder."""

import os
import re
import signal
import time
from pathlib import Path

import psutil
import pytest

from tests.checkpoints import RUN, has_rows, read, same_run
from tests.conftest import ENDLESS, SEED
from tests.processes import all_gone, descendants, wait_until

SLOW = ("--env-name", "tests.slow:Slow-v0", "--small-net", "--n", 4, "--run-dir", "slow")


@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGINT, marks=pytest.mark.picture), signal.SIGTERM]
)
def test_an_interrupt_of_the_whole_group_saves_and_leaves_nothing(start, number):
    process = start(*ENDLESS, "--workers", 2)
    wait_until(lambda: has_rows(RUN, 3))
    pids = descendants(process.pid)
    assert len(pids) > 2
    os.killpg(process.pid, number)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (128 + number, "")
    assert out.splitlines()[-2].startswith("Interrupted after ")
    wait_until(lambda: all_gone(pids))
    updates = len((RUN / "progress.csv").read_text().splitlines()) - 1
    assert read(RUN / "latest.safetensors").counters.update == updates


def test_an_interrupt_during_start_up_is_quiet_and_leaves_no_process(start):
    process = start(*SLOW)
    wait_until(lambda: len(descendants(process.pid)) >= 2)  # the fork server is importing
    time.sleep(0.2)
    pids = descendants(process.pid)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "")
    assert out.count("\n") <= 1  # what begins
    wait_until(lambda: all_gone(pids))


def test_an_interrupted_test_sums_up_what_it_has_played(start, program):
    program.train("--max-gradient-updates", 1, "--run-dir", "run")
    play = ("--test", "--no-render", "--episodes", 10**6, "--restore", "run/latest.safetensors")
    process = start(*play)
    assert process.stdout is not None
    assert process.stdout.readline() == "Loading run/latest.safetensors ...\n"
    assert process.stdout.readline().startswith("Episode 1: ")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "")
    assert re.match(r"\d+ episodes?: mean ", out.splitlines()[-1])


def test_all_workers_start_quickly_and_share_their_memory_from_any_folder(start):
    """Were the modules not preloaded, each of the 41 workers would hold them: over 3 GB."""
    process = start(*ENDLESS)
    wait_until(lambda: has_rows(RUN, 3))
    workers = [
        child
        for child in psutil.Process(process.pid).children(recursive=True)
        if child.ppid() != process.pid
    ]
    assert len(workers) == 41
    if hasattr(psutil.Process().memory_full_info(), "pss"):
        assert sum(worker.memory_full_info().pss for worker in workers) < 2**30


def test_an_interrupted_evaluation_leaves_a_run_that_carries_on_to_the_bit(start, program):
    options = ("--small-net", "--env-name", "CartPole-v1", "--n", 4, "--seed", SEED)
    evaluated = (*options, "--eval-every", 2, "--eval-episodes")
    process = start(*evaluated, 200_000, "--workers", 2)
    wait_until(lambda: has_rows(RUN, 2))
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert out.splitlines()[-2].startswith("Interrupted after 2 updates, 8 episodes")
    rest = ("--max-gradient-updates", 4, "--eval-episodes", 2, "--workers", 0)
    assert program("--restore", RUN / "latest.safetensors", *rest)[0] == 0
    assert program(*evaluated, 2, *rest, "--run-dir", "whole")[0] == 0
    assert same_run(read(RUN / "latest.safetensors"), read("whole/latest.safetensors"))


def test_an_interrupt_before_the_first_update_leaves_a_run_to_carry_on(start):
    process = start(*SLOW)
    run = Path("slow")
    wait_until((run / "latest.safetensors").exists)
    process.send_signal(signal.SIGINT)
    _out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "")
    assert read(run / "latest.safetensors").counters.update == 0


@pytest.mark.picture
def test_an_interrupt_while_the_last_picture_is_drawn_keeps_the_outcome(start):
    process = start(*ENDLESS[:-1], 20, "--workers", 2)
    assert process.stdout is not None
    lines = [process.stdout.readline()]
    while not lines[-1].startswith("Evaluation after "):
        lines.append(process.stdout.readline())
    wait_until(lambda: read(RUN / "latest.safetensors").solved)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert out.splitlines()[-1].startswith("Solved: ")
