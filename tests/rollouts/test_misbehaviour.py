"""Environments that go wrong while they are made, played and closed, through the command line."""

import os
import signal
from pathlib import Path

import pytest

from tests.checkpoints import has_rows, rows
from tests.processes import all_gone, descendants, wait_until

AWFUL = "--env-name tests.awful:Awful-v0"
RUN = ("--small-net", "--n", 2, "--seed", 1, "--max-gradient-updates", 1, "--run-dir", "run")


def awful(program, *kwargs, workers=0):
    """The status, the line, and the traceback under it."""
    flags = (*AWFUL.split(), *RUN, "--workers", workers, "--env-kwargs", *kwargs)
    status, _, err = program(*flags)
    line, _, trace = err.partition("\n")
    return status, line, trace


def lines_of_the_users(trace):
    """What a traceback shows: it names no file but the environment's."""
    assert trace.startswith("Traceback (most recent call last):\n")
    lines = [line.strip() for line in trace.splitlines()]
    assert {Path(line.split('"')[1]).name for line in lines if line.startswith("File ")} == {
        "awful.py"
    }
    return lines


@pytest.mark.parametrize("place", ["made", "reset", "step"])
def test_a_bug_is_one_line_and_the_traceback_of_the_users_own_code(program, place):
    status, line, trace = awful(program, f"place={place}")
    how = "made" if place == "made" else "played"
    assert status == 2
    assert line.startswith(f"error: {AWFUL}")
    assert f"cannot be {how} (KeyError: 'boom')" in line
    lines = lines_of_the_users(trace)
    assert lines[-1] == "KeyError: 'boom'"
    assert f'self.at("{place}")' in lines


@pytest.mark.parametrize(
    ("what", "words", "workers"),
    [("exit", "SystemExit: 0", 0), ("exit", "SystemExit: 0", 1), ("break", "KeyboardInterrupt", 0)],
)
def test_so_it_is_in_an_episode(program, workers, what, words):
    status, line, trace = awful(program, "place=step", f"what={what}", "first=2", workers=workers)
    assert status == 1
    assert line.startswith(f"error: {AWFUL}: the episode of seed ")
    assert ("failed 3 times; " if workers else "failed (") in line
    assert words in line
    lines = lines_of_the_users(trace)
    assert lines[-1].endswith(words)


@pytest.mark.parametrize("place", ["made", "step"])
def test_an_exit_elsewhere_is_one_line(program, place):
    status, line, trace = awful(program, f"place={place}", "what=exit")
    assert (status, trace) == (1, "")
    assert line.startswith(f"error: {AWFUL}")
    assert "cannot be" in line
    assert not Path("run").exists()


@pytest.mark.parametrize(
    ("code", "status", "words"),
    [
        ("import sys; sys.exit(0)", 1, "SystemExit: 0"),
        ("raise KeyboardInterrupt", 1, "KeyboardInterrupt"),
        ("raise KeyError('boom')", 2, "KeyError: 'boom'"),
        ("import no_such_module_at_all", 2, "ModuleNotFoundError: No module named 'no_such"),
        ("def f(:", 2, "SyntaxError: invalid syntax (broken.py, line 1)"),
    ],
)
def test_a_module_that_cannot_be_imported(program, monkeypatch, tmp_path, code, status, words):
    monkeypatch.syspath_prepend(tmp_path)
    Path("broken.py").write_text(code)
    found, out, err = program("--env-name", "broken:X-v0", *RUN)
    line, _, trace = err.partition("\n")
    assert (found, out) == (status, "")
    assert line.startswith(f"error: --env-name broken:X-v0: cannot import broken ({words}")
    if "Error" in words and "Syntax" not in words:
        assert 'broken.py", line 1, in <module>' in trace
        assert "importlib" not in trace
    else:
        assert not trace


@pytest.mark.parametrize(
    ("place", "what", "words"),
    [
        ("seen", "short", "its observation has the shape (2,)"),
        ("paid", "text", "its reward is '1.5', not a number"),
        ("paid", "none", "its reward is None, not a number"),
        ("paid", "vector", "its reward is a vector"),
    ],
)
def test_what_is_no_observation_or_reward_is_one_line_that_names_the_step(
    program, place, what, words
):
    kwargs = (f"place={place}", f"what={what}", "first=2")
    status, line, trace = awful(program, *kwargs)
    assert (status, trace) == (1, "")
    assert f"after step 3, {words}" in line


@pytest.mark.parametrize("what", ["boom", "exit"])
@pytest.mark.parametrize("workers", [0, 1])
def test_an_environment_may_fail_to_close(program, workers, what):
    assert awful(program, "place=close", f"what={what}", workers=workers) == (0, "", "")
    assert rows(Path("run"))


def test_a_reward_in_an_array_is_taken(program):
    assert awful(program, "place=paid", "what=alone", "first=2")[0] == 0
    assert rows(Path("run"))[0]["return_max"] == "5.0"


def test_a_program_that_is_killed_leaves_no_worker_and_nothing_that_these_have_started(start):
    endless = (*RUN, "--workers", 2, "--max-gradient-updates", 10**6)
    process = start("--env-name", "tests.awful:Leaving-v0", *endless)
    wait_until(lambda: has_rows(Path("run"), 1))  # perhaps by one worker alone
    wait_until(lambda: Path("pids").read_text().count("\n") == 3)
    masters, *workers = [int(pid) for pid in Path("pids").read_text().split()]
    started = {*descendants(process.pid)} - {masters}
    process.kill()
    wait_until(lambda: all_gone([*started, *workers]), 30)
    os.kill(masters, signal.SIGKILL)  # its environment has been closed, and has left this
