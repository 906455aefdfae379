"""Reports to Weights & Biases, without its server."""

import importlib.util
import json
import os
import signal
import struct
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from PIL import Image

from es import learn
from es.reports.learning_curve import CurvePainter
from es.run import CURVE
from tests.checkpoints import RUN, has_rows, rows
from tests.conftest import CARTPOLE, ENDLESS
from tests.processes import all_gone, descendants, wait_until
from tests.records import events_of, scalars

INSTALLED = importlib.util.find_spec("wandb") is not None
needs_wandb = pytest.mark.skipif(
    not INSTALLED, reason="wandb is not installed (pip install -r requirements-extra.txt)"
)


@pytest.fixture(autouse=True)
def _nobody_is_logged_in(monkeypatch, tmp_path):
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    yield
    if sys.modules.get("wandb"):
        sys.modules["wandb"].teardown()  # it keeps its settings for as long as the process lives


def records(path):
    """What a run's file holds: records in blocks of 32 KiB, each with checksum, length and type."""
    from wandb.proto import wandb_internal_pb2

    record: Any = wandb_internal_pb2.Record  # type: ignore[attr-defined]

    data, start, whole = path.read_bytes(), 7, b""
    while start + 7 <= len(data):
        if 32768 - start % 32768 < 7:
            start += 32768 - start % 32768
            continue
        _, length, kind = struct.unpack("<IHB", data[start : start + 7])
        whole += data[start + 7 : start + 7 + length]
        start += 7 + length
        if kind in (1, 4):  # a whole one, or the last part
            yield record.FromString(whole)
            whole = b""


def history(run_dir):
    """Its rows by step, and its settings."""
    found, config = {}, {}
    (path,) = run_dir.glob("run-*.wandb")
    for record in records(path):
        if record.HasField("run"):
            config = {item.key: json.loads(item.value_json) for item in record.run.config.update}
        items = record.history.item
        row = {"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in items}
        if row:
            found[row["_step"]] = row
    return found, config


def has_reported():
    """Whether wandb has taken the first updates."""
    return any(path.stat().st_size > 20_000 for path in RUN.glob("wandb/offline-run-*/*.wandb"))


@needs_wandb
def test_the_same_figures_as_in_tensorboard_and_on_it_goes_when_carried_on(program, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    picture = Image.new("RGB", (960, 600))
    monkeypatch.setattr(CurvePainter, "_draw", lambda painter, _: picture.save(RUN / CURVE))
    out = program.train("--max-gradient-updates", 4, "--eval-every", 2, "--wandb")
    (line,) = [line for line in out.splitlines() if "Weights & Biases" in line]
    (first,) = RUN.glob("wandb/offline-run-*")
    assert line.endswith(f"offline; send it later: wandb sync {first.resolve()}")
    assert not Path("wandb").exists()
    wait_until(lambda: history(first)[0])  # its process writes a little later
    found, config = history(first)
    assert (config["env_name"], config["n"]) == ("CartPole-v1", 4)
    for tag, values in scalars(RUN).items():
        for step, value in values:
            assert found[step][tag] == pytest.approx(value)
    frames = int(rows()[3]["frames"])
    assert sum(found[frames]["returns/population/values"]) == 4
    assert found[frames]["learning_curve/width"] == 960
    assert [image.step for image in events_of(RUN).Tensors("learning_curve")] == [frames]
    carried_on = ("--restore", RUN / "latest.safetensors", "--max-gradient-updates", 6)
    program(*carried_on, "--wandb", "--workers", 0)
    (second,) = set(RUN.glob("wandb/offline-run-*")) - {first}
    assert second.name.split("-")[-1] == first.name.split("-")[-1]
    frames_after = [int(row["frames"]) for row in rows()[4:]]
    wait_until(lambda: sorted(history(second)[0]) == frames_after)


@needs_wandb
def test_a_program_keeps_its_own_run(monkeypatch, tmp_path):
    import wandb

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_RUN_ID", "theirs")
    with wandb.init(settings=wandb.Settings(console="off")) as run:
        run.log({"loss": 2.0})
        learn(
            env_name="CartPole-v1", n=4, workers=0, max_gradient_updates=2, silent=True, wandb=True
        )
        assert wandb.run is run
        run.log({"loss": 1.0})
    (ours,) = RUN.glob("wandb/offline-run-*")
    assert not ours.name.endswith("theirs")
    wait_until(lambda: len(history(ours)[0]) == 2)
    wait_until(lambda: len(history(Path(run.dir).parent)[0]) == 2)
    assert all("loss" in row for row in history(Path(run.dir).parent)[0].values())


@pytest.mark.parametrize("installed", [pytest.param(True, marks=needs_wandb), False])
def test_what_is_missing_is_said_before_anything_is_written(program, monkeypatch, installed):
    if not installed:
        monkeypatch.setitem(sys.modules, "wandb", None)
    status, out, err = program(*CARTPOLE, "--workers", 0, "--max-gradient-updates", 1, "--wandb")
    login = "run `wandb login`, or set WANDB_MODE=offline"
    remedy = login if installed else "pip install -r requirements-extra.txt"
    assert (status, out) == (2, "")
    assert err.startswith("error: --wandb: ")
    assert err.endswith(f"; {remedy}\n")
    assert list(Path().iterdir()) == []


@needs_wandb
def test_a_server_that_cannot_be_reached_leaves_reports_to_be_sent_later(program, monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", 40 * "x")
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("WANDB_INIT_TIMEOUT", "1")
    out = program.train("--max-gradient-updates", 2, "--wandb")
    (run,) = RUN.glob("wandb/offline-run-*")
    identity = (RUN / "wandb" / "id.txt").read_text()
    assert f"offline; send it later: wandb sync --id {identity} {run.resolve()}" in out
    frames = [int(row["frames"]) for row in rows()]
    wait_until(lambda: sorted(history(run)[0]) == frames)


@needs_wandb
def test_a_setting_of_wandb_that_is_wrong_is_named(program, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "nonsense")
    status, out, err = program(*CARTPOLE, "--workers", 0, "--max-gradient-updates", 1, "--wandb")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("error: --wandb: WANDB_MODE: ")


@needs_wandb
@pytest.mark.parametrize(
    ("happens", "warning"),
    [("kill", "the run goes on without"), ("suspend", "in time; send the rest: wandb sync /")],
)
def test_a_run_outlives_the_process_of_wandb(start, monkeypatch, happens, warning):
    monkeypatch.setenv("WANDB_MODE", "offline")
    process = start(*ENDLESS, "--workers", 0, "--silent", "--wandb")
    wait_until(has_reported)
    children = psutil.Process(process.pid).children()
    (theirs,) = [each for each in children if each.name() == "wandb-core"]
    getattr(theirs, happens)()
    count = len(rows())
    wait_until(lambda: has_rows(RUN, count + 9))
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130
    with suppress(psutil.NoSuchProcess):
        theirs.resume()
    _, err = process.communicate()
    wait_until(lambda: all_gone([theirs.pid]))
    assert err.startswith("warning: --wandb: ")
    assert err.endswith("\n")
    assert (warning in err, err.count("\n")) == (True, 1)


@needs_wandb
def test_a_killed_run_leaves_no_process_and_its_figures(start, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    process = start(*ENDLESS, "--workers", 0, "--silent", "--wandb")
    wait_until(has_reported)
    theirs = descendants(process.pid)
    process.kill()
    wait_until(lambda: all_gone(theirs))
    (run_dir,) = RUN.glob("wandb/offline-run-*")
    assert {int(row["frames"]) for row in rows()[:3]} <= set(history(run_dir)[0])
