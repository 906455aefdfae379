import errno
import fcntl
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from es.errors import UsageError
from es.runs import directory as rundir
from tests.processes import ROOT


def open_and_close(path: Path, *, chosen: bool = False) -> Path:
    with closing(rundir.open_new(path, chosen=chosen)) as run:
        return run.path


def a_run(path: Path) -> None:
    path.mkdir(parents=True)
    (path / "latest.safetensors").write_text(path.name)


def test_a_new_run_takes_the_next_number_and_no_run_is_moved(tmp_path):
    path, taken = tmp_path / "run", []
    for number in (1, 2, 3):
        run = rundir.open_new(path, chosen=True)
        taken.append(run.path)
        assert not (run.path / "progress.csv").exists()
        (run.path / "progress.csv").write_text(str(number))
        run.close()
    assert taken == [path, tmp_path / "run.2", tmp_path / "run.3"]
    assert [(each / "progress.csv").read_text() for each in taken] == ["1", "2", "3"]


def test_runs_at_once_take_numbers_of_their_own(tmp_path):
    """Also while none of them has written a file yet."""
    path = tmp_path / "run"
    first, second = rundir.open_new(path), rundir.open_new(path)
    a_run(tmp_path / "run.3")
    assert [first.path, second.path] == [path, tmp_path / "run.2"]
    for each in (first, second, rundir.open_new(path)):
        (each.path / "config.toml").write_text("")
        each.close()
    assert (tmp_path / "run.4" / "config.toml").exists()


def test_a_run_that_begins_and_ends_before_the_lock_is_kept(tmp_path, monkeypatch):
    path, real = tmp_path / "run", fcntl.flock

    def another_first(lock, operation):
        (path / "latest.safetensors").write_text("")
        real(lock, operation)

    monkeypatch.setattr(fcntl, "flock", another_first)
    assert open_and_close(path) == tmp_path / "run.2"


def test_a_directory_that_was_named_is_not_taken_from_a_run(tmp_path):
    with closing(rundir.open_new(tmp_path / "run", chosen=True)) as run:
        for names in ((), ("latest.safetensors",)):
            for name in names:
                (run.path / name).write_text("")
            with pytest.raises(UsageError, match="another run is writing there"):
                rundir.open_new(run.path, chosen=True)
    assert open_and_close(run.path, chosen=True) == tmp_path / "run.2"


def test_a_number_follows_the_name_of_the_folder_that_one_is_in(tmp_path, monkeypatch):
    a_run(tmp_path / "run")
    (tmp_path / "run" / "inner").mkdir()
    monkeypatch.chdir(tmp_path / "run")
    assert open_and_close(Path(), chosen=True) == tmp_path / "run.2"
    (tmp_path / "run" / "best.safetensors").touch()
    monkeypatch.chdir("inner")
    assert open_and_close(Path("..")) == tmp_path / "run.2"
    assert rundir.choose(None, Path("d"), Path("../best.safetensors"))[0] == Path(
        f"{tmp_path}/run-from-best"
    )


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
        with pytest.raises(UsageError, match="another run is writing there"):
            rundir.open_existing(path)
        assert (path / "latest.safetensors").read_text() == "precious"
    finally:
        other.kill()
        other.communicate()
    rundir.open_existing(path).close()


def test_a_file_system_without_locks_is_used_with_one_warning(tmp_path, monkeypatch, capsys):
    def no_locks(lock, operation):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    a_run(tmp_path / "run")
    assert open_and_close(tmp_path / "run", chosen=True) == tmp_path / "run.2"
    rundir.open_existing(tmp_path / "run").close()
    assert capsys.readouterr().err == (
        f"warning: {tmp_path}: its file system has no locks (Function not implemented), so nothing "
        "keeps two runs from writing to one directory\n"
    )


def test_a_shared_lock_is_asked_for_with_a_readable_file(tmp_path, monkeypatch):
    """NFS refuses others."""
    real = fcntl.flock

    def flock(lock, operation):
        assert lock.readable()
        assert lock.writable()
        real(lock, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    rundir.open_existing(tmp_path, shared=True).close()


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("file/run", "/file is not a directory"),
        ("file/a/run", "/file is not a directory"),
        ("file", "/file is not a directory"),
        ("nowhere", "/nowhere is not a directory"),
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
    assert rundir.choose(None, default, Path("trained/X.safetensors")) == (default, False)
    beside = Path("checkpoints/X-from-best")
    assert rundir.choose(None, default, old / "best.safetensors") == (beside, False)
    with pytest.raises(UsageError, match="holds the run"):
        rundir.choose(str(old), default, old / "best.safetensors")


def test_where_a_run_goes_from_inside_the_directory(tmp_path, monkeypatch):
    a_run(tmp_path / "X")
    monkeypatch.chdir(tmp_path / "X")
    assert rundir.choose(None, Path("d"), Path("latest.safetensors")) == (Path(), True)
    path, _ = rundir.choose(None, Path("d"), Path("best.safetensors"))
    assert path == tmp_path / "X-from-best"
