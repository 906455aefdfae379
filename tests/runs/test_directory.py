import errno
import fcntl
import subprocess
import sys
from pathlib import Path

import pytest

from es.errors import UsageError
from es.runs import directory as rundir
from tests.conftest import ROOT


def a_run(path: Path) -> None:
    path.mkdir(parents=True)
    (path / "latest.safetensors").write_text(path.name)


def test_an_older_run_is_moved_aside(tmp_path):
    path, asides = tmp_path / "run", []
    for number in (1, 2, 3):
        run = rundir.open_new(path)
        asides.append(run.aside)
        assert not (path / "progress.csv").exists()
        (path / "progress.csv").write_text(str(number))
        run.close()
    assert asides == [None, tmp_path / "run.1", tmp_path / "run.2"]
    assert (tmp_path / "run.1" / "progress.csv").read_text() == "1"
    assert (tmp_path / "run.2" / "progress.csv").read_text() == "2"


def test_a_run_cannot_be_moved_aside_from_within(tmp_path, monkeypatch):
    a_run(tmp_path / "run")
    monkeypatch.chdir(tmp_path / "run")
    for path in (Path(), Path("../run")):
        with pytest.raises(UsageError, match="from outside"):
            rundir.open_new(path)
    assert (tmp_path / "run" / "latest.safetensors").exists()


def test_a_lock_on_a_directory_that_was_moved_aside_meanwhile_is_no_lock(tmp_path, monkeypatch):
    """Between opening the lock file and locking it, another run moves the directory."""
    path, real = tmp_path / "run", fcntl.flock
    path.mkdir()

    def move_first(lock, operation):
        monkeypatch.setattr(fcntl, "flock", real)
        path.rename(tmp_path / "aside")
        path.mkdir()
        (path / ".lock").write_text("")
        real(lock, operation)

    monkeypatch.setattr(fcntl, "flock", move_first)
    with pytest.raises(UsageError, match="another run"):
        rundir.open_existing(path)


def test_a_folder_without_a_run_is_used_as_it_is(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    rundir.open_new(tmp_path).close()
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_two_runs_at_once_and_the_lock_ends_with_its_process(tmp_path):
    path = tmp_path / "run"
    program = (
        "import pathlib, sys, time; from es.runs import directory as rundir;"
        "run = rundir.open_existing(pathlib.Path(sys.argv[1])); print(flush=True); time.sleep(600)"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", program, str(path)], cwd=ROOT, stdout=subprocess.PIPE
    )
    try:
        assert other.stdout is not None
        other.stdout.readline()
        (path / "latest.safetensors").write_text("precious")
        for open_it in (rundir.open_existing, rundir.open_new):
            with pytest.raises(UsageError, match="another run is writing there"):
                open_it(path)
        assert (path / "latest.safetensors").read_text() == "precious"
    finally:
        other.kill()
        other.communicate()
    rundir.open_existing(path).close()


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("file/run", "/file is no directory"),
        ("file/a/run", "/file is no directory"),
        ("file", "/file is no directory"),
        ("nowhere", "/nowhere is no directory"),
        ("x" * 300, "File name too long"),
        ("nul\0", "null byte"),
        ("loop/run", "[lL]oop|symbolic links"),
    ],
)
def test_a_directory_that_cannot_be_written_is_an_error(tmp_path, path, reason):
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "nowhere").symlink_to("missing")
    with pytest.raises(UsageError, match=rf"--run-dir .* cannot be written \(.*({reason})\); "):
        rundir.open_new(tmp_path / path)


def test_where_a_run_goes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    default, old = Path("checkpoints/X"), Path("checkpoints/X")
    a_run(old)
    assert rundir.choose(None, default, None) == (default, False)
    assert rundir.choose("mine", default, None) == (Path("mine"), False)
    assert rundir.choose(None, default, old / "latest.safetensors") == (old, True)
    assert rundir.choose("checkpoints/../checkpoints/X", default, old / "latest.safetensors")[1]
    assert rundir.choose("mine", default, old / "latest.safetensors") == (Path("mine"), False)
    assert rundir.choose("mine", default, old / "best.safetensors") == (Path("mine"), False)
    beside = Path("checkpoints/X-from-best")
    assert rundir.choose(None, default, old / "best.safetensors") == (beside, False)
    a_run(beside)
    assert rundir.choose(None, default, old / "best.safetensors") == (Path(f"{beside}.1"), False)
    with pytest.raises(UsageError, match="holds the run"):
        rundir.choose(str(old), default, old / "best.safetensors")


def test_where_a_run_goes_from_inside_the_directory(tmp_path, monkeypatch):
    a_run(tmp_path / "X")
    monkeypatch.chdir(tmp_path / "X")
    assert rundir.choose(None, Path("d"), Path("latest.safetensors")) == (Path(), True)
    path, _ = rundir.choose(None, Path("d"), Path("best.safetensors"))
    assert path == tmp_path / "X-from-best"


def test_a_full_disk_leaves_the_older_run_in_its_place(tmp_path, monkeypatch):
    def full(path, text):
        raise OSError(errno.ENOSPC, "No space left on device")

    a_run(tmp_path / "run")
    monkeypatch.setattr(rundir, "write_text", full)
    with pytest.raises(UsageError, match=r"No space left on device.*make room"):
        rundir.open_new(tmp_path / "run")
    assert (tmp_path / "run" / "latest.safetensors").read_text() == "run"
    assert not (tmp_path / "run.1").exists()


def test_a_directory_that_was_moved_is_noticed(tmp_path):
    run = rundir.open_new(tmp_path / "run")
    run.check()
    away = run.path.rename(tmp_path / "away")
    with pytest.raises(OSError, match="moved"):
        run.check()
    rundir.open_new(tmp_path / "run").close()
    with pytest.raises(OSError, match="moved"):
        run.check()
    (tmp_path / "run" / ".lock").unlink()
    (tmp_path / "run").rmdir()
    away.rename(tmp_path / "run")
    run.check()
    run.close()
