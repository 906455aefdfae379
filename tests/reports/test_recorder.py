"""Videos that are made beside the training."""

import io
import os
from contextlib import closing
from pathlib import Path

import pytest
from PIL.GifImagePlugin import GifImageFile

from es.reports import recorder
from es.reports.films import VideoRecorder
from es.reports.helper import HelperProcess
from es.reports.tensorboard import EventFile
from es.runs.directory import open_existing
from tests.conftest import ROOT, RUN, all_gone, read, run_python, wait_until
from tests.rendering.test_video import decoded, differing


def test_videos_are_made_in_training_and_those_that_a_killed_run_has_left(program):
    program.train("--max-gradient-updates", 2)
    folder = RUN / "videos"
    folder.mkdir()
    (folder / ".update-2.pth").write_bytes((RUN / "latest.pth").read_bytes())
    (folder / ".update-1.recording.mp4").write_text("half a video")
    arguments = ("--restore", RUN / "latest.pth", "--workers", 0, "--video-every", 2)
    status, out, err = program(*arguments, "--max-gradient-updates", 5)
    assert (status, err) == (0, "")
    assert "Recording the last videos" in out
    assert sorted(path.name for path in folder.glob("[!e]*")) == ["update-2.mp4", "update-4.mp4"]
    assert not list(folder.glob(".*"))
    assert min(differing(decoded(folder / f"update-{update}.mp4")[0]) for update in (2, 4)) > 4
    images = list(previews(folder))
    assert [step for step, _ in images] == [2, 4]
    for _, content in images:
        with GifImageFile(io.BytesIO(content)) as gif:
            assert gif.n_frames > 2


@pytest.fixture
def run(tmp_path):
    """The directory of a run."""
    with closing(open_existing(tmp_path / "run")) as directory:
        yield directory


def test_what_cannot_be_recorded_in_time_is_left_out(program, run, monkeypatch):
    """And what waits is recorded first by the next process."""
    woken: list[HelperProcess] = []
    told: list[str] = []
    monkeypatch.setattr(HelperProcess, "wake", lambda helper: woken.append(helper))
    program.train("--max-gradient-updates", 1)
    checkpoint = read(RUN / "latest.pth")
    videos = VideoRecorder(run, "recorder", "CartPole-v1", told.append)
    assert not woken
    for update in range(25):
        counters = checkpoint.counters._replace(update=update)
        videos.record(checkpoint._replace(counters=counters))
    assert (len(woken), videos.waiting(), len(told)) == (20, 20, 1)
    assert "--video-every" in told[0]
    VideoRecorder(run, "recorder", "CartPole-v1", told.append)
    assert len(woken) == 21


def test_nothing_is_recorded_into_a_run_that_has_taken_the_place_of_this_one(
    program, run, monkeypatch
):
    monkeypatch.setattr(HelperProcess, "wake", lambda helper: None)
    program.train("--max-gradient-updates", 1)
    checkpoint, told = read(RUN / "latest.pth"), list[str]()
    videos = VideoRecorder(run, "recorder", "CartPole-v1", told.append)
    run.path.rename(run.path.with_name("away"))
    folder = run.path / "videos"
    folder.mkdir(parents=True)
    theirs = [folder / ".update-8.recording.mp4", folder / ".update-9.pth"]
    for path in (*theirs, run.path / ".lock"):
        path.touch()
    with pytest.raises(OSError, match="moved, deleted or replaced"):
        videos.record(checkpoint)
    assert videos.waiting() == 0
    videos.close(lambda: 60.0)
    assert sorted(folder.iterdir()) == theirs
    assert not told


def test_a_video_that_tensorboard_does_not_show_is_told_of(run):
    told: list[str] = []
    videos = VideoRecorder(run, "recorder", "CartPole-v1", told.append)
    log = run.path / "videos/recorder.log"
    log.write_text("error: videos/update-2.mp4: is not shown by TensorBoard (full)\n")
    videos.close(lambda: 60.0)
    assert told == ["videos/update-2.mp4: is not shown by TensorBoard (full)"]
    assert not log.exists()


LINGERING = """
import time
from pathlib import Path
from es.reports.helper import woken
for _ in woken():
    Path("begun").touch()
    time.sleep(3600)
"""
HELPED = """
import os, signal, time
from pathlib import Path
from es.reports.helper import HelperProcess
helper = HelperProcess("lingering", [])
helper.wake()
while not Path("begun").exists():
    time.sleep(0.02)
print(helper._process.pid, flush=True)
"""


@pytest.mark.parametrize("waiting", [True, False])
def test_a_helper_ends_with_a_master_that_is_killed(tmp_path, waiting):
    """Even if that has told it to end, and waits."""
    Path("lingering.py").write_text(LINGERING)
    die = "os.kill(os.getpid(), signal.SIGKILL)"
    path = os.pathsep.join((str(ROOT), str(tmp_path)))
    end = f"helper.close(lambda: {die})" if waiting else die
    done = run_python(HELPED + end, tmp_path, PYTHONPATH=path)
    wait_until(lambda: all_gone([int(done.stdout)]))


def test_what_could_not_be_recorded_is_told_and_tried_again(program):
    """As on a full disk, for which a directory of the video's name stands.

    It is tried again even if the run is at its end.
    """
    program.train("--max-gradient-updates", 2)
    folder = RUN / "videos"
    (folder / "update-2.mp4").mkdir(parents=True)
    (folder / ".update-2.pth").write_bytes((RUN / "latest.pth").read_bytes())
    run = ("--restore", RUN / "latest.pth", "--workers", 0, "--video-every", 100)
    status, _, err = program(*run, "--max-gradient-updates", 3)
    assert status == 0
    assert err.startswith(f"warning: {folder}: 1 episode could not be recorded (error: --video ")
    assert "it is a directory" in err
    assert err.count("\n") == 1
    (folder / "update-2.mp4").rmdir()
    status, out, err = program(*run, "--max-gradient-updates", 3)
    assert (status, err) == (0, "")
    assert out.startswith("Recording the last videos (1); ")
    assert "Finished already: " in out
    assert sorted(path.name for path in folder.glob("[!e]*")) == ["update-2.mp4"]
    assert not list(folder.glob(".*"))


def test_what_has_no_pictures_cannot_be_recorded(program):
    game = ("--env-name", "tests.strange:Digits-v0", "--n", 2, "--workers", 0)
    status, _, err = program(*game, "--video-every", 2)
    assert status == 2
    assert err.count("\n") == 1
    assert "give --video-every None" in err
    assert not Path("checkpoints").exists()


def previews(folder):
    """The GIFs that TensorBoard shows, with their updates."""
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    for path in folder.glob("events*"):
        for event in EventFileLoader(str(path)).Load():
            for value in event.summary.value:
                yield event.step, value.tensor.string_val[2]


def test_what_is_recorded_late_leaves_newer_previews(tmp_path, monkeypatch):
    folder = tmp_path / "videos"
    folder.mkdir()
    (folder / ".update-2.tried.pth").touch()
    gif = b"GIF89a\x01\x00\x01\x00"
    events = EventFile(folder)
    events.add_image("episode", gif, 10)
    events.flush()
    events.close()
    monkeypatch.setattr("os.nice", lambda increment: None)
    monkeypatch.setattr(recorder, "woken", lambda: [None])
    monkeypatch.setattr(recorder, "record", lambda snapshot, video, env_name: True)
    monkeypatch.setattr(
        "es.rendering.video.convert", lambda video, made, *how: made.write_bytes(gif)
    )
    recorder.main(tmp_path, "CartPole-v1")
    assert sorted(previews(folder)) == [(2, gif), (10, gif)]


def test_a_preview_that_cannot_be_made_holds_up_no_other_video(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "videos"
    folder.mkdir()
    for update in (2, 10):
        (folder / f".update-{update}.pth").touch()
    recorded: list[str] = []

    def record(snapshot, video, env_name):
        recorded.append(video.name)
        return True

    def full(events, video, update):
        raise OSError("No space left on device")

    monkeypatch.setattr("os.nice", lambda increment: None)
    monkeypatch.setattr(recorder, "woken", lambda: [None])
    monkeypatch.setattr(recorder, "record", record)
    monkeypatch.setattr(recorder, "add_preview", full)
    recorder.main(tmp_path, "CartPole-v1")
    assert recorded == ["update-2.mp4", "update-10.mp4"]
    assert not list(folder.glob(".*"))
    assert capsys.readouterr().err.count("No space left on device") == 2
