import subprocess
import sys
from pathlib import Path

import pytest

from es import rundir
from es.errors import UsageError
from tests.conftest import ROOT, wait_until


def a_run(path: Path) -> None:
    path.mkdir(parents=True)
    (path / "latest.pth").write_text(path.name)


def test_an_older_run_is_moved_aside_and_the_user_told(tmp_path):
    path, said = tmp_path / "run", list[str]()
    for number in (1, 2):
        run = rundir.open_new(path, said.append)
        (path / "progress.csv").write_text(str(number))
        run.close()
    rundir.open_new(path, said.append).close()
    assert (tmp_path / "run.1" / "progress.csv").read_text() == "1"
    assert (tmp_path / "run.2" / "progress.csv").read_text() == "2"
    assert not (path / "progress.csv").exists()
    assert [f"{path} held another run: it is now {path}.{n}." for n in (1, 2)] == said


def test_a_folder_without_a_run_is_used_as_it_is(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    rundir.open_new(tmp_path, pytest.fail).close()
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_two_runs_at_once_and_the_lock_ends_with_its_process(tmp_path):
    path = tmp_path / "run"
    program = (
        "import pathlib, sys, time; from es import rundir;"
        "run = rundir.open_existing(pathlib.Path(sys.argv[1])); print(flush=True); time.sleep(600)"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", program, str(path)], cwd=ROOT, stdout=subprocess.PIPE
    )
    try:
        assert other.stdout is not None
        other.stdout.readline()
        (path / "latest.pth").write_text("precious")
        for open_it in (rundir.open_existing, lambda path: rundir.open_new(path, pytest.fail)):
            with pytest.raises(UsageError, match="another run is writing there"):
                open_it(path)
        assert (path / "latest.pth").read_text() == "precious"
    finally:
        other.kill()
        other.communicate()
    rundir.open_existing(path).close()


@pytest.mark.parametrize("path", ["file/run", "file"])
def test_a_directory_that_cannot_be_written_is_an_error(tmp_path, path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"--run-dir .* cannot be written"):
        rundir.open_new(tmp_path / path, pytest.fail)


def test_where_a_run_goes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    default, old = Path("checkpoints/X"), Path("checkpoints/X")
    a_run(old)
    assert rundir.choose(None, default, None) == (default, False)
    assert rundir.choose("mine", default, None) == (Path("mine"), False)
    assert rundir.choose(None, default, old / "latest.pth") == (old, True)
    assert rundir.choose("checkpoints/../checkpoints/X", default, old / "latest.pth")[1]
    assert rundir.choose("mine", default, old / "latest.pth") == (Path("mine"), False)
    assert rundir.choose("mine", default, old / "best.pth") == (Path("mine"), False)
    beside = Path("checkpoints/X-from-best")
    assert rundir.choose(None, default, old / "best.pth") == (beside, False)
    a_run(beside)
    assert rundir.choose(None, default, old / "best.pth") == (Path(f"{beside}.1"), False)
    with pytest.raises(UsageError, match="holds the run"):
        rundir.choose(str(old), default, old / "best.pth")


def test_where_a_run_goes_from_inside_the_directory(tmp_path, monkeypatch):
    a_run(tmp_path / "X")
    monkeypatch.chdir(tmp_path / "X")
    assert rundir.choose(None, Path("d"), Path("latest.pth")) == (Path(), True)
    path, _ = rundir.choose(None, Path("d"), Path("best.pth"))
    assert path == tmp_path / "X-from-best"


def test_a_csv_is_carried_on_without_gaps_or_doubled_rows(tmp_path):
    path = tmp_path / "progress.csv"
    rundir.carry_csv_on(path, ["update", "x"], 0)
    assert path.read_text() == "update,x\n"
    path.write_text("update,x\n1,a\n2,b\n3,c\n4,")  # killed while writing
    rundir.carry_csv_on(path, ["update", "x"], 2)
    assert path.read_text() == "update,x\n1,a\n2,b\n"
    wait_until(lambda: not path.with_name("progress.csv.tmp").exists())
