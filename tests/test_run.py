"""A run on the disk: its directory, how it is resumed and branched, its limits."""

import errno
import fcntl
import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
import torch

from es import run
from es.checkpoint import Checkpoint, Counters
from es.config import Config
from es.errors import UsageError
from es.rollouts.processes import PRELOAD
from tests.checkpoints import RUN, read, rows, same, same_run, settings, timeless
from tests.conftest import CARTPOLE
from tests.processes import ROOT


def open_and_close(path: Path) -> Path:
    with closing(run.open_new(path)) as directory:
        return directory.path


def a_run(path: Path) -> None:
    path.mkdir(parents=True)
    (path / "latest.safetensors").write_text(path.name)


def test_a_new_run_takes_the_next_number_and_no_run_is_moved(tmp_path):
    path, taken = tmp_path / "run", []
    for number in (1, 2, 3):
        directory = run.open_new(path)
        taken.append(directory.path)
        assert not (directory.path / "progress.csv").exists()
        (directory.path / "progress.csv").write_text(str(number))
        directory.close()
    assert taken == [path, tmp_path / "run.2", tmp_path / "run.3"]
    assert [(each / "progress.csv").read_text() for each in taken] == ["1", "2", "3"]


def test_runs_at_once_take_numbers_of_their_own(tmp_path):
    """Also while none of them has written a file yet."""
    path = tmp_path / "run"
    first, second = run.open_new(path), run.open_new(path)
    a_run(tmp_path / "run.3")
    assert [first.path, second.path] == [path, tmp_path / "run.2"]
    for each in (first, second, run.open_new(path)):
        (each.path / "config.toml").write_text("")
        each.close()
    assert (tmp_path / "run.4" / "config.toml").exists()


def test_a_number_follows_the_name_of_the_folder_that_one_is_in(tmp_path, monkeypatch):
    a_run(tmp_path / "run")
    (tmp_path / "run" / "inner").mkdir()
    monkeypatch.chdir(tmp_path / "run")
    assert open_and_close(Path()) == tmp_path / "run.2"
    (tmp_path / "run" / "best.safetensors").touch()
    monkeypatch.chdir("inner")
    assert open_and_close(Path("..")) == tmp_path / "run.2"


def test_a_folder_without_a_run_is_used_as_it_is(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    run.open_new(tmp_path).close()
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_two_runs_at_once_and_the_lock_ends_with_its_process(tmp_path):
    path = tmp_path / "run"
    program = (
        "import pathlib, sys, time; from es import run;"
        "directory = run.open_directory(pathlib.Path(sys.argv[1]));"
        "print(flush=True); time.sleep(600)"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", program, str(path)], cwd=ROOT, stdout=subprocess.PIPE
    )
    try:
        assert other.stdout is not None
        other.stdout.readline()
        (path / "latest.safetensors").write_text("precious")
        with pytest.raises(UsageError, match="another run writes there"):
            run.open_directory(path)
        assert (path / "latest.safetensors").read_text() == "precious"
    finally:
        other.kill()
        other.communicate()
    run.open_directory(path).close()


def test_a_file_system_without_locks_is_used_with_one_warning(tmp_path, monkeypatch, capsys):
    def no_locks(lock, operation):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    a_run(tmp_path / "run")
    assert open_and_close(tmp_path / "run") == tmp_path / "run.2"
    run.open_directory(tmp_path / "run").close()
    assert capsys.readouterr().err == (
        f"warning: {tmp_path}: its file system has no locks (Function not implemented), so nothing "
        "keeps two runs from writing to one directory\n"
    )


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("file/run", "[nN]ot a directory"),
        ("file", "not a directory"),
        ("x" * 300, "File name too long"),
        ("nul\0", "null byte"),
        ("loop/run", "[lL]oop|symbolic links"),
    ],
)
def test_a_directory_that_cannot_be_written_is_an_error(tmp_path, path, reason):
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(UsageError, match=rf"--run-dir .* cannot be written \(.*({reason})"):
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
    with pytest.raises(UsageError, match="holds the run"):
        goes(best, old)
    monkeypatch.chdir(old)
    assert goes("latest.safetensors") == (".", True)
    assert goes("best.safetensors")[0] == str(tmp_path / "checkpoints/X-from-best")


# ---- resumed and branched ----


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
    assert "update 10  episodes 40  " in out
    assert same_run(read("whole/latest.safetensors"), read("parts/latest.safetensors"))
    assert same(
        read("whole/best.safetensors").parameters, read("parts/best.safetensors").parameters
    )
    assert timeless(Path("whole")) == timeless(Path("parts"))
    clock = [float(row["wall_seconds"]) for row in rows(Path("parts"))]
    assert clock == sorted(clock)


def test_pong_learns_from_pixels_and_resumes_to_the_bit(program):
    options = (
        "--env-name", "PongDeterministic-v0", "--n", 2, "--seed", 3, "--useAdam", "--lr", 0.01,
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
    assert out == f"Finished already: {told}. Raise that to continue.\n"
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
        patch.setattr("es.run.weighted_sum", sum_for_long)
        status, out, _ = program(*carried_on)
    assert status == 130
    assert "\nInterrupted after 1 update," in out
    assert program(*carried_on)[0] == 0
    assert same_run(read("whole/latest.safetensors"), read("parts/latest.safetensors"))
    assert timeless(Path("whole")) == timeless(Path("parts"))


# ---- other settings ----


def test_a_different_setting_is_an_error_unless_overridden(program):
    program.train("--max-gradient-updates", 2)
    again = ("--restore", RUN / "latest.safetensors", "--max-gradient-updates", 3)
    status, out, err = program(*again, "--lr", 0.5)
    assert (status, out) == (2, "")
    assert "--lr 0.5 differs from the checkpoint's 0.1" in err
    assert "--override" in err
    status, *_ = program(*again, "--lr", 0.5, "--override", "--workers", 1)
    assert status == 0
    assert rows()[-1]["lr"] == "0.5"
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


# ---- limits ----


@pytest.mark.parametrize(
    ("recent", "missed", "due"),
    [
        ([9.0, 9.0], None, False),
        ([9.0, 9.0, 9.0], None, True),
        ([9.0, 9.0, 2.0], None, False),
        ([1.7e308] * 3, None, False),  # whose mean is infinite
        ([9.0, 9.0, 9.0], (29, 8.0), True),
        ([9.0, 9.0, 9.0], (29, 9.0), False),
        ([9.0, 9.0, 9.0], (21, 9.0), False),
        ([9.0, 9.0, 9.0], (20, 9.0), True),
    ],
)
def test_an_evaluation_is_due_at_a_higher_mean_or_ten_updates_after_a_miss(recent, missed, due):
    counters = Counters(30, 0, 0, 0.0, 1, None, 0.1, 0.1, recent=recent)
    if missed:
        counters = counters._replace(missed_update=missed[0], missed_return=missed[1])
    assert run.target_due(Config(target_return=7.0), counters) is due
    assert not run.target_due(Config(), counters)
