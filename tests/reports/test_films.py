"""Videos that are made beside the training."""

import io
import os
from contextlib import closing
from pathlib import Path
from threading import Event
from unittest.mock import Mock

import pytest
from PIL.GifImagePlugin import GifImageFile

from es.reports import films as videos
from es.reports.films import VideoRecorder
from es.reports.terminal import Terminal
from es.run import open_directory
from tests.checkpoints import RUN, read, rows
from tests.fakes import LINGERING
from tests.processes import all_gone, wait_until
from tests.rendering.videos import decoded, differing, previews


def test_videos_are_made_in_training_and_those_that_a_killed_run_has_left(program):
    program.train("--max-gradient-updates", 2)
    folder = RUN / "videos"
    folder.mkdir()
    (folder / ".update-2-frames-70.safetensors").write_bytes(
        (RUN / "latest.safetensors").read_bytes()
    )
    (folder / ".update-1.recording.mp4").write_text("half a video")
    arguments = ("--restore", RUN / "latest.safetensors", "--workers", 0, "--video-every", 2)
    status, out, err = program(*arguments, "--max-gradient-updates", 5)
    assert (status, err) == (0, "")
    assert "Recording the last videos" in out
    assert sorted(path.name for path in folder.glob("[!e]*")) == ["update-2.mp4", "update-4.mp4"]
    assert not list(folder.glob(".*"))
    assert min(differing(decoded(folder / f"update-{update}.mp4")[0]) for update in (2, 4)) > 4
    images = list(previews(folder))
    assert [step for step, _ in images] == [70, int(rows()[3]["frames"])]
    for _, content in images:
        with GifImageFile(io.BytesIO(content)) as gif:
            assert gif.n_frames > 2


def test_what_could_not_be_recorded_is_told(program):
    """As on a full disk, for which a directory of the video's name stands."""
    program.train("--max-gradient-updates", 2)
    folder = RUN / "videos"
    (folder / "update-2.mp4").mkdir(parents=True)
    (folder / ".update-2-frames-70.safetensors").write_bytes(
        (RUN / "latest.safetensors").read_bytes()
    )
    run = ("--restore", RUN / "latest.safetensors", "--workers", 0, "--video-every", 100)
    status, _, err = program(*run, "--max-gradient-updates", 3)
    assert status == 0
    assert err.startswith(f"warning: {folder}: 1 episode could not be recorded (error: --video ")
    assert "it is a directory" in err
    assert err.count("\n") == 1


def test_what_has_no_pictures_cannot_be_recorded(program):
    game = ("--env-name", "tests.strange:Digits-v0", "--n", 2, "--workers", 0)
    status, _, err = program(*game, "--video-every", 2)
    assert status == 2
    assert err.count("\n") == 1
    assert "leave --video-every out" in err
    assert not Path("checkpoints").exists()


@pytest.fixture
def run(tmp_path):
    """The directory of a run."""
    with closing(open_directory(tmp_path / "run")) as directory:
        (directory.path / "videos").mkdir()
        yield directory


@pytest.fixture
def started(monkeypatch):
    """The modules and arguments that were to be run; none of them is."""
    found = []

    def note(recorder, module, *arguments):
        found.append((module, *arguments))
        return ""

    monkeypatch.setattr(VideoRecorder, "_run", note)
    return found


@pytest.fixture
def checkpoint(program):
    program.train("--max-gradient-updates", 1)
    return read(RUN / "latest.safetensors")


def test_what_cannot_be_recorded_in_time_is_left_out(run, checkpoint, monkeypatch, capfd):
    """Every other video, never the last; the next process records what is left first, and all."""

    def record(recorder, updates):
        for update in updates:
            counters = checkpoint.counters._replace(update=update, frames=100 * update)
            recorder.record(checkpoint._replace(counters=counters))

    monkeypatch.setattr(VideoRecorder, "_work", lambda recorder: None)
    record(VideoRecorder(run, [], Terminal(silent=True)), range(25))
    err = capfd.readouterr().err
    assert err.count("\n") == 1
    assert "--video-every" in err
    monkeypatch.undo()
    recorded: list[str] = []
    may_begin = Event()

    def note(recorder, snapshot):
        may_begin.wait()
        if snapshot.exists():
            recorded.append(snapshot.name)

    monkeypatch.setattr(VideoRecorder, "_record", note)
    following = VideoRecorder(run, [], Terminal(silent=True))
    record(following, range(25, 35))
    may_begin.set()
    following.close(lambda: False)
    kept = [0, *range(1, 20, 2), *range(20, 35)]
    assert recorded == [f".update-{each}-frames-{100 * each}.safetensors" for each in kept]


def test_a_video_that_was_left_out_is_no_failure(run, started, capfd):
    recorder = VideoRecorder(run, [], Terminal(silent=True))
    recorder._queue.put(run.path / "videos/.update-2-frames-70.safetensors")
    recorder.close(lambda: False)
    assert not started
    assert capfd.readouterr().err == ""


def test_nothing_is_recorded_into_a_run_that_has_taken_the_place_of_this_one(
    run, checkpoint, started, capfd
):
    recorder = VideoRecorder(run, [], Terminal(silent=True))
    run.path.rename(run.path.with_name("away"))
    folder = run.path / "videos"
    folder.mkdir(parents=True)
    theirs = [folder / ".update-8.recording.mp4", folder / ".update-9-frames-90.safetensors"]
    for path in (*theirs, run.path / ".lock"):
        path.touch()
    with pytest.raises(OSError, match="moved, deleted or replaced"):
        recorder.record(checkpoint)
    recorder._queue.put(theirs[1])  # as if it had been one of its own
    recorder.close(lambda: False)
    assert sorted(folder.iterdir()) == theirs
    assert not started
    assert capfd.readouterr().err == ""


def test_a_preview_that_cannot_be_made_holds_up_no_other_video(run, monkeypatch, capfd):
    (run.path / "videos/.update-2-frames-70.safetensors").touch()
    (run.path / "videos/.update-10-frames-900.safetensors").touch()
    started: list[str] = []

    def run_module(recorder, module, *arguments):
        started.append(f"{module} {Path(arguments[-1]).name}")
        return "No space left on device" if module == videos.PREVIEW else ""

    monkeypatch.setattr(VideoRecorder, "_run", run_module)
    VideoRecorder(run, [], Terminal(silent=True)).close(lambda: False)
    assert started == [
        "es update-2.mp4", "es.reports.preview 70", "es update-10.mp4", "es.reports.preview 900"
    ]  # fmt: skip
    assert not list((run.path / "videos").iterdir())
    err = capfd.readouterr().err
    assert err.endswith("update-10.mp4: is not shown by TensorBoard (No space left on device)\n")
    assert err.count("\n") == 1


def test_who_is_in_a_hurry_waits_for_no_video(run, monkeypatch, capfd):
    snapshot = run.path / "videos/.update-2-frames-70.safetensors"
    snapshot.touch()
    (run.path / "videos/.update-3-frames-100.safetensors").touch()
    monkeypatch.setattr(videos, "PROGRAM", "lingering")
    monkeypatch.setenv("PYTHONPATH", str(run.path))
    (run.path / "lingering.py").write_text(LINGERING)
    recorder = VideoRecorder(run, [], Terminal(silent=False))
    wait_until(Path("begun").exists)
    recorder.close(lambda: True)
    assert recorder._process
    assert recorder._process.poll() is not None
    wait_until(lambda: all_gone([int(Path("pid").read_text())]))
    assert videos.waiting(run.path) == 2
    out, err = capfd.readouterr()
    assert (out, err) == ("Videos left to be recorded when the run is carried on: 2\n", "")


@pytest.fixture
def instead(run, monkeypatch):
    """Has this program run instead of the one that records; there are three snapshots."""

    def replace(program):
        for update in (2, 3, 4):
            (run.path / f"videos/.update-{update}-frames-70.safetensors").touch()
        (run.path / "instead.py").write_text(program)
        monkeypatch.setattr(videos, "PROGRAM", "instead")
        monkeypatch.setenv("PYTHONPATH", str(run.path))

    return replace


def test_a_run_does_not_wait_for_what_does_nothing(run, instead, monkeypatch, capfd):
    instead("import time; print('begun', file=open('begun', 'a')); time.sleep(3600)")
    monkeypatch.setattr(videos, "IDLE_SECONDS", 2.0)
    VideoRecorder(run, [], Terminal(silent=True)).close(lambda: False)
    assert Path("begun").read_text() == 2 * "begun\n"  # the third would fail like the others
    err = capfd.readouterr().err
    assert "3 episodes could not be recorded (it did nothing for 2 seconds): tried again" in err
    assert err.count("\n") == 1


def test_a_run_waits_for_no_process_of_low_priority(run, instead, monkeypatch):
    """One whose priority must not be raised is begun anew; here it would sleep for an hour."""
    instead("import os, time; open('begun', 'w'); time.sleep(3600 * (os.nice(0) == 19))")
    monkeypatch.setattr(os, "setpriority", Mock(side_effect=PermissionError))
    monkeypatch.setattr(videos, "PREVIEW", "keyword")
    recorder = VideoRecorder(run, [], Terminal(silent=True))
    wait_until(Path("begun").exists)
    recorder.close(lambda: False)
    assert videos.waiting(run.path) == 0
