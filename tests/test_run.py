"""A run on the disk: its directory, how it is resumed and branched, its limits."""

import errno
import fcntl
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from es import run
from es.checkpoint import Checkpoint, Counters
from es.config import Config
from es.errors import UsageError
from es.policy import make_policy
from es.reports.console import Console
from es.rollouts.processes import cores
from tests.checkpoints import RUN, read, rows, same, same_run, settings, timeless
from tests.conftest import CARTPOLE
from tests.processes import ROOT
from tests.records import a_run
from tests.test_options import learned


def open_and_close(path: str) -> Path:
    directory, lock = run.open_new(Path(path))
    lock.close()
    return directory


def test_a_new_run_takes_the_next_number():
    """Also if several start at once, and none of them has written a file yet."""
    a_run(Path("run.3"))
    opened = [run.open_new(Path("run")) for _ in range(3)]
    assert [str(path) for path, _ in opened] == ["run", "run.2", "run.4"]
    for path, lock in opened[:2]:
        (path / "config.toml").write_text("")
        lock.close()
    opened[2][1].close()
    assert open_and_close("run") == Path("run.4")  # in which no run has begun


def test_a_number_follows_the_name_of_the_folder_that_one_is_in(tmp_path, monkeypatch):
    a_run(tmp_path / "run")
    (tmp_path / "run" / "inner").mkdir()
    monkeypatch.chdir(tmp_path / "run" / "inner")
    assert open_and_close("") == Path()  # in which there is no run
    assert open_and_close("..") == tmp_path / "run.2"


def test_a_lock_ends_with_its_process(tmp_path):
    path = tmp_path / "run"
    program = (
        "import pathlib, sys, time; from es import run;"
        "lock = run.open_directory(pathlib.Path(sys.argv[1]));"
        "print(flush=True); time.sleep(600)"
    )
    words = [sys.executable, "-c", program, str(path)]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(UsageError, match="another run writes there"):
            run.open_directory(path)
        other.kill()
    run.open_directory(path).close()


def test_a_file_system_without_locks_is_used(monkeypatch):
    def no_locks(lock, operation):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    a_run(Path("run"))
    assert open_and_close("run") == Path("run.2")


@pytest.mark.parametrize("path", ["file/run", "file"])
def test_a_directory_that_cannot_be_written_is_an_error(tmp_path, path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"--run-dir .* cannot be written \(.*[nN]ot a directory"):
        run.open_new(tmp_path / path)


def goes(restore="", run_dir=None, *, weights=False):
    """Where a run goes, and whether it is resumed."""
    config = Config(env_name="X", restore=restore, run_dir=run_dir)
    checkpoint = Checkpoint({}, None if weights else config) if restore else None
    path, resumed = run.destination(config, checkpoint)
    return str(path), resumed


def test_where_a_run_goes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    old = "checkpoints/X"
    a_run(Path(old))
    assert goes() == (old, False)
    assert goes(run_dir="mine") == ("mine", False)
    latest, best = f"{old}/latest.safetensors", f"{old}/best.safetensors"
    assert goes(latest) == goes(latest, "checkpoints/../checkpoints/X") == (old, True)
    assert goes(latest, weights=True) == (old, False)
    assert goes(latest, "mine") == goes(best, "mine") == ("mine", False)
    assert goes("trained/X.safetensors") == (old, False)
    assert goes(best) == ("checkpoints/X-from-best", False)
    Path("best.safetensors").touch()  # a copy
    assert goes("best.safetensors") == (old, False)
    assert str(run.default_path("a", "b:X")) == "a/b.X"  # scp takes a colon for a host
    with pytest.raises(UsageError, match="holds the run"):
        goes(best, old)
    monkeypatch.chdir(old)
    assert goes("latest.safetensors") == (".", True)
    assert goes("best.safetensors")[0] == str(tmp_path / "checkpoints/X-from-best")


# ---- resumed and branched ----


def test_a_finished_run_says_so(program):
    program.train("--max-gradient-updates", 2)
    before = {path: path.read_bytes() for path in RUN.iterdir()}
    status, out, err = program("--restore", RUN / "latest.safetensors")
    assert (status, err) == (0, "")
    told = f"the run of {RUN}/latest.safetensors has reached 2 updates (--max-gradient-updates)"
    assert out == f"Finished already: {told}. Raise it to continue.\n"
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


def test_an_interrupt_while_noise_is_summed_does_not_wait_and_loses_no_update(program, monkeypatch):
    program.train("--max-gradient-updates", 2, "--run-dir", "whole")
    program.train("--max-gradient-updates", 1, "--run-dir", "parts")
    carried_on = ("--restore", "parts", "--workers", 0, "--max-gradient-updates", 2)

    def sum_for_long(*arguments, **settings):
        os.kill(os.getpid(), signal.SIGINT)
        raise AssertionError("the sum went on")

    with monkeypatch.context() as patch:
        patch.setattr("es.algorithm.strategy.weighted_sum", sum_for_long)
        status, out, _ = program(*carried_on)
    assert status == 130
    assert "\nInterrupted after 1 update," in out
    assert program(*carried_on)[0] == 0
    assert same_run(read("whole/latest.safetensors"), read("parts/latest.safetensors"))
    assert timeless(Path("whole")) == timeless(Path("parts"))


# ---- other settings ----


def learning_rates(directory=RUN):
    return [float(row["lr"]) for row in rows(directory)]


def test_an_override_of_rate_or_decay_holds_from_then_on(program):
    program.train("--lr-decay", 0.5, "--max-gradient-updates", 3)
    again = ("--override", "--workers", 0, "--restore", RUN / "latest.safetensors")
    program(*again, "--lr-decay", 0.1, "--max-gradient-updates", 5)
    program(*again, "--lr", 7, "--max-gradient-updates", 7)
    program(*again, "--lr", 7, "--max-gradient-updates", 8)  # anew, not as it has decayed
    expected = [0.1, 0.05, 0.025, 0.0125, 0.00125, 7, 0.7, 7]
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


def test_an_override_changes_sigma_optimiser_and_momentum(program):
    learned(program, "--momentum", 0.5, "--sigma-decay", 0.5)
    again = ("--restore", "run/latest.safetensors", "--override", "--workers", 0)
    assert program(*again, "--sigma", 0.3, "--max-gradient-updates", 3)[0] == 0
    assert [float(row["sigma"]) for row in rows(Path("run"))] == [0.05, 0.025, 0.3]
    for optimizer in (("--momentum", 0), ("--optimizer", "adam"), ("--optimizer", "adamw")):
        updates = len(rows(Path("run"))) + 1
        status, _, err = program(*again, *optimizer, "--max-gradient-updates", updates)
        assert (status, err) == (0, "")
    assert settings("run/latest.safetensors").optimizer == "adamw"
    assert any("exp_avg" in name for name in read("run/latest.safetensors").optimizer)


def test_another_sigma_scales_the_adapted_ones(program):
    learned(program, "--sigma-adapt")
    before = read("run/latest.safetensors").relative_sigma
    again = ("--restore", "run/latest.safetensors", "--override", "--workers", 0)
    # An update with a sigma-lr of nearly 0 changes none of them.
    assert program(*again, "--sigma", 0.3, "--sigma-lr", 1e-30, "--max-gradient-updates", 3)[0] == 0
    after = read("run/latest.safetensors")
    assert before is not None
    assert after.relative_sigma is not None
    assert before.std() > 0
    assert after.counters.sigma == pytest.approx(0.3)
    assert torch.allclose(after.relative_sigma, before)


def test_a_lower_cap_holds_at_once(program):
    learned(program, "--adaptive-ep-len")
    again = ("--restore", "run/latest.safetensors", "--override", "--workers", 0)
    program(*again, "--max-episode-length", 5, "--max-gradient-updates", 3)
    assert float(rows(Path("run"))[-1]["episode_length_mean"]) == 5


def test_a_target_that_was_met_otherwise_is_not_met(program):
    target = ("--target-return", -5000, "--eval-episodes", 1)
    learned(program, *target, "--max-gradient-updates", 3)
    again = ("--restore", "run/latest.safetensors", "--workers", 0, "--silent", "--override")
    assert program(*again)[1].startswith("Finished already")
    status, out, _ = program(*again, "--env-kwargs", "g=30", "--max-gradient-updates", 6)
    assert status == 0
    assert out.startswith("Solved")


# ---- workers ----


@pytest.mark.parametrize(("workers", "count"), [(None, 7), ("auto", cores()), (3, 3)])
def test_workers_are_one_for_each_perturbation_and_the_policy_unless_a_number_is_given(
    workers, count, monkeypatch
):
    monkeypatch.setattr(run, "WorkerPool", lambda recipe, workers, **options: workers)
    policy = make_policy(Config(env_name="CartPole-v1", n=6, seed=1, workers=workers), None)
    assert run.start_pool(policy, Console(silent=True), None) == count


# ---- limits ----


@pytest.mark.parametrize(
    ("recent", "missed", "due"),
    [
        ([9.0, 9.0], None, False),
        ([9.0, 9.0, 9.0], None, True),
        ([1.7e308] * 3, None, False),  # whose mean is infinite
        ([9.0, 9.0, 9.0], (29, 8.0), True),
        ([9.0, 9.0, 9.0], (29, 9.0), False),
        ([9.0, 9.0, 9.0], (20, 9.0), True),
    ],
)
def test_an_evaluation_is_due_at_a_higher_mean_or_ten_updates_after_a_miss(recent, missed, due):
    counters = Counters(30, 0, 0, 0.0, 1, None, 0.1, 0.1, recent=recent)
    if missed:
        counters = counters._replace(missed_update=missed[0], missed_return=missed[1])
    assert run.target_due(Config(target_return=7.0), counters) is due
    assert not run.target_due(Config(), counters)


def test_a_missed_evaluation_says_nothing_about_another_target():
    before = Config(target_return=9.0, max_gradient_updates=30)
    counters = Counters(30, recent=[8.0] * 3, missed_update=29, missed_return=8.5)
    lower, checkpoint = replace(before, target_return=7.0), Checkpoint({}, before, counters)
    assert run.finished_before(lower, checkpoint) is None
    assert run.target_due(lower, run.first_counters(lower, checkpoint, resumed=True))
    further, missed = replace(lower, max_gradient_updates=40), Checkpoint({}, lower, counters)
    assert not run.target_due(further, run.first_counters(further, missed, resumed=True))


def test_a_best_checkpoint_that_is_missing_does_not_stay_so(program):
    """The scores of the further updates are lower than the best one before."""
    program.train("--max-gradient-updates", 8)
    (RUN / "best.safetensors").unlink()
    assert program("--restore", RUN / "latest.safetensors", "--max-gradient-updates", 10)[0] == 0
    assert read(RUN / "best.safetensors").counters.update >= 8
