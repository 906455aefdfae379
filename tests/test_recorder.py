"""Videos that are made beside the training."""

import io
from pathlib import Path

from PIL.GifImagePlugin import GifImageFile

import recorder
from es.monitor.helper import HelperProcess
from es.monitor.videos import VideoRecorder
from tests.conftest import RUN, all_gone, read, run_python, wait_until
from tests.records import write_progress
from tests.test_video import decoded, differing


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


def test_what_cannot_be_recorded_in_time_is_left_out(program, tmp_path, monkeypatch):
    """And what waits is recorded first by the next process."""
    woken: list[HelperProcess] = []
    told: list[str] = []
    monkeypatch.setattr(HelperProcess, "wake", lambda helper: woken.append(helper))
    program.train("--max-gradient-updates", 1)
    checkpoint = read(RUN / "latest.pth")
    videos = VideoRecorder(tmp_path, "recorder", "CartPole-v1", told.append)
    assert not woken
    for update in range(25):
        counters = checkpoint.counters._replace(update=update)
        videos.record(checkpoint._replace(counters=counters))
    assert (len(woken), videos.waiting(), len(told)) == (20, 20, 1)
    assert "--video-every" in told[0]
    VideoRecorder(tmp_path, "recorder", "CartPole-v1", told.append)
    assert len(woken) == 21


HELPED = """
import os, signal, sys, time
from pathlib import Path
from es.monitor.helper import HelperProcess
helper = HelperProcess("es.monitor.curve", [sys.argv[1], "", ""])
helper.wake()
while not Path(sys.argv[1], "learning_curve.png").exists():
    time.sleep(0.02)
print(helper._process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_helper_ends_with_a_master_that_is_killed(tmp_path):
    write_progress(tmp_path, 3)
    done = run_python(HELPED.replace("sys.argv[1]", repr(str(tmp_path))))
    wait_until(lambda: all_gone([int(done.stdout)]))


def test_what_could_not_be_recorded_is_told_and_tried_again(program):
    """As on a full disk, for which a directory of the video's name stands."""
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
    status, _, err = program(*run, "--max-gradient-updates", 4)
    assert (status, err) == (0, "")
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
