"""The previews of videos in TensorBoard."""

from contextlib import closing

from es.reports import preview
from es.reports.append_only import Place
from es.reports.tensorboard import EventFile
from tests.rendering.videos import previews

GIF = b"GIF89a\x01\x00\x01\x00"


def test_what_is_recorded_late_leaves_newer_previews(tmp_path, monkeypatch):
    with closing(EventFile(Place(tmp_path))) as events:
        events.add_image("episode", GIF, 10)
        events.flush()
    monkeypatch.setattr(preview, "convert", lambda video, made, *how: made.write_bytes(GIF))
    preview.show(tmp_path / "update-2.mp4", 2)
    assert list(previews(tmp_path)) == [(10, GIF), (2, GIF)]
    assert not list(tmp_path.glob(".*"))
