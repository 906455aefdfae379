"""The files of a run: figures, checkpoints, TensorBoard and W&B, on a disk that may be full."""

import errno
import importlib.util
import resource
import signal
import sys
import time
import types
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from tensorboard.plugins.hparams.metadata import (
    parse_experiment_plugin_data,
    parse_session_start_info_plugin_data,
)
from tensorboard.util.tensor_util import make_ndarray

from es.algorithm.shaping import Population
from es.errors import UsageError
from es.reports import log as logs
from es.reports.log import (
    COLUMNS,
    EVALUATION_COLUMNS,
    Log,
    Table,
    describe_evaluation,
    describe_population,
    require_wandb,
)
from tests.checkpoints import RUN, has_rows, read, rows
from tests.conftest import ENDLESS
from tests.processes import wait_until
from tests.records import counters_after, events_of, record, scalars

RETURNS = np.array([5.0, 10.0, 15.0, np.nan])
QUICK = ("--small-net", "--env-name", "CartPole-v1", "--n", 4, "--seed", 1, "--workers", 0)


@pytest.fixture
def open_log(tmp_path):
    """Opens the log of a run, resumed from the checkpoint after so many updates."""
    told: list[str] = []

    def make(update=0, **more):
        settings = more.pop("settings", {})
        log = Log(
            tmp_path, counters_after(update), settings=settings, say=told.append, warn=told.append,
            **more,
        )  # fmt: skip
        log.told = told  # type: ignore[attr-defined]
        return log

    return make


def evaluation(update):
    return describe_evaluation(counters_after(update), [float(update), update + 2.0])


def finish(log):
    return log.close(lambda: False)


def write(log, *updates, evaluated=()):
    """Commit these updates, each after the evaluation of the one before, and close the log."""
    for update in updates:
        if update in evaluated:
            log.commit({}, evaluation=evaluation(update))
        log.commit({}, played=(record(update), RETURNS))
    return finish(log)


def test_the_figures_of_a_batch_leave_out_returns_that_are_not_finite():
    returns = np.array([1.0, 4.0, np.nan, 4.0, 7.0, np.inf, -np.inf])
    lengths = [10, 20, 30, 40, 20, 20, 70]
    assert describe_population(Population(returns, -returns, lengths, 4.0, 2)) == {
        "return_mean": 4.0,
        "return_std": pytest.approx(4.5**0.5),
        "return_max": 7.0,
        "return_min": 1.0,
        "unperturbed_return": 4.0,
        "unperturbed_rank": 2,
        "elite_count": 1,
        "non_finite": 3,
        "episode_length_mean": 30.0,
    }


def test_a_resumed_run_has_no_gaps_and_no_doubled_steps(tmp_path, open_log):
    write(open_log(), 1, 2, 3, 4, evaluated=(2, 4))
    log = open_log(2)  # the checkpoint knows of two
    log.commit({}, evaluation=evaluation(2))  # played again
    write(log, 3, 4, 5, evaluated=(5,))
    found = rows(tmp_path)
    assert list(found[0]) == list(COLUMNS)
    assert [row["update"] for row in found] == ["1", "2", "3", "4", "5"]
    assert [float(row["return_mean"]) for row in found] == [11.0, 12.0, 13.0, 14.0, 15.0]
    first, last = rows(tmp_path, "evaluations.csv")
    assert list(first) == list(EVALUATION_COLUMNS)
    assert first == {
        "update": "2", "frames": "200", "wall_seconds": "3.0", "episodes": "2",
        "mean": "3.0", "std": "1.0", "min": "2.0", "max": "4.0", "returns": "2.0 4.0",
    }  # fmt: skip
    assert last["update"] == "5"
    drawn = scalars(tmp_path)
    assert drawn["returns/return_mean"] == [(100 * n, 10.0 + n) for n in range(1, 6)]
    assert drawn["progress/update"] == [(100 * n, n) for n in range(1, 6)]
    assert drawn["evaluation/return_mean"] == [(200, 3.0), (500, 6.0)]
    names = {tag.split("/")[1] for tag in drawn if not tag.startswith("evaluation")}
    assert names == set(COLUMNS)


@pytest.mark.parametrize(
    "torn", [b"", b"6,24", b"2,b\n", b"\xff\0\n", b"nan" + b",1" * (len(COLUMNS) - 1) + b"\n"]
)
def test_torn_doubled_and_later_rows_are_dropped(tmp_path, torn):
    path = tmp_path / "progress.csv"
    whole = Table(path, COLUMNS, 0)
    for update in range(1, 6):
        whole.add(record(update))
    whole.flush()
    header, *lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(header + b"".join([*lines[:2], lines[0], *lines[2:], torn]))
    assert Table(path, COLUMNS, 4).last == 4
    assert path.read_bytes() == header + b"".join(lines[:4])


def fail(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_checkpoints_that_the_disk_refused_are_written_later_the_latest_last(
    tmp_path, open_log, monkeypatch
):
    full, saved = False, []

    def save(checkpoint, path):
        if full:
            fail()
        saved.append((checkpoint, path.name))

    monkeypatch.setattr(logs, "save", save)
    log = open_log()

    def commit(checkpoints):
        log.commit(checkpoints)
        for _ in range(logs.MOST_BATCHES + 1):
            log.commit({})  # until the first of these is written

    commit({"latest.safetensors": 1, "best.safetensors": 1})
    full = True
    for number in (2, 3):
        commit({"latest.safetensors": number, f"update-{number}.safetensors": number})
    full = False
    assert finish(log) == {}
    assert saved == [
        (1, "best.safetensors"), (1, "latest.safetensors"), (2, "update-2.safetensors"),
        (3, "update-3.safetensors"), (3, "latest.safetensors"),
    ]  # fmt: skip
    refused, written = log.told
    assert refused.startswith(f"{tmp_path}: update-2.safetensors cannot be written (No space left")
    assert written == f"{tmp_path}: all pending files have been written."


def test_tensorboard_has_the_distribution_and_the_settings(tmp_path, open_log):
    settings = {"lr": 0.5, "vbn": True, "shaping": "nes", "sigma_min": None}
    log = open_log(settings=settings)
    returns = [RETURNS, np.array([np.inf] * 3), np.array([7.0] * 3)]
    for update, each in enumerate(returns, 1):
        log.commit({}, played=(record(update), each))
    finish(log)
    events = events_of(tmp_path)
    first, last = events.Tensors("returns/population")
    assert (first.step, last.step) == (100, 300)
    buckets = make_ndarray(first.tensor_proto)  # left edge, right edge, count
    assert (buckets[0, 0], buckets[-1, 1], buckets[:, 2].sum()) == (5.0, 15.0, 3)
    content = events.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    started = parse_session_start_info_plugin_data(content).hparams
    assert set(started) == {"lr", "vbn", "shaping"}
    assert (started["lr"].number_value, started["shaping"].string_value) == (0.5, "nes")
    content = events.SummaryMetadata("_hparams_/experiment").plugin_data.content
    metrics = [info.name.tag for info in parse_experiment_plugin_data(content).metric_infos]
    assert metrics == ["returns/unperturbed_return", "evaluation/return_mean"]


def test_a_picture_that_was_not_drawn_is_told(tmp_path, open_log):
    curve = SimpleNamespace(request=lambda: None, close=lambda hurried: "no matplotlib")
    log = open_log(curve=curve)
    write(log, 1)
    (line,) = log.told
    picture = tmp_path / "learning_curve.png"
    assert line.startswith(f"{picture}: does not show the last updates (no matplotlib). To draw")
    assert line.endswith(f"compare {tmp_path}") or line.endswith(f"compare.py {tmp_path}")


class FakeRun:
    """A run of W&B."""

    def __init__(self, broken=False):
        self.broken, self.rows, self.finished = broken, {}, 0

    def log(self, values, step):
        if self.broken:
            raise RuntimeError("the service died")
        self.rows.setdefault(step, {}).update(values)

    def finish(self):
        self.finished += 1


@pytest.fixture
def fake_wandb(monkeypatch):
    module = types.ModuleType("wandb")
    module.Histogram = lambda numbers, num_bins: list(numbers)  # type: ignore[attr-defined]
    module.login = lambda **_: False  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", module)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    return module


@pytest.mark.usefixtures("fake_wandb")
def test_wandb_gets_the_figures_of_tensorboard(tmp_path, open_log):
    run = FakeRun()
    write(open_log(wandb=run), 1, 2, evaluated=(2,))
    drawn = scalars(tmp_path)
    for step in (100, 200):
        expected = {
            tag: value for tag, values in drawn.items() for at, value in values if at == step
        }
        found = dict(run.rows[step])
        assert found.pop("returns/population") == [5.0, 10.0, 15.0]
        assert found == pytest.approx(expected)
    assert run.finished == 1


@pytest.mark.usefixtures("fake_wandb")
def test_a_run_goes_on_without_wandb_when_that_fails(tmp_path, open_log):
    run = FakeRun(broken=True)
    log = open_log(wandb=run)
    assert write(log, 1, 2) == {}
    assert log.told == ["--wandb: the service died. The run goes on without W&B."]
    assert run.finished == 0
    assert len(rows(tmp_path)) == 2


def test_wandb_without_a_login_or_a_library_is_one_line(fake_wandb, monkeypatch):
    with pytest.raises(UsageError, match="not logged in"):
        require_wandb()
    fake_wandb.login = lambda **_: True
    require_wandb()
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UsageError, match="wandb is not installed: pip install"):
        require_wandb()


@pytest.mark.skipif(importlib.util.find_spec("wandb") is None, reason="wandb is not installed")
def test_a_resumed_run_continues_in_wandb(program, monkeypatch, tmp_path):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("HOME", str(tmp_path))
    program.train("--max-gradient-updates", 1, "--wandb")
    latest = RUN / "latest.safetensors"
    more = ("--workers", 0, "--max-gradient-updates", 2, "--wandb")
    status, out, err = program("--restore", latest, *more)
    assert (status, err) == (0, "")
    assert "Weights & Biases: offline" in out
    identity = (RUN / "wandb/id.txt").read_text()
    # W&B adds -1 to the name of one that begins within the same second.
    assert len(list(RUN.glob(f"wandb/offline-run-*-{identity}*"))) == 2
    sys.modules["wandb"].teardown()  # it keeps its settings for as long as the process lives


def test_a_table_that_a_full_disk_refused_twice_has_one_header(tmp_path):
    path = tmp_path / "table.csv"
    made = Table(path, ("update", "mean"), 0)
    made.add((1, 2.0))
    path.symlink_to("/dev/full")
    for _ in range(2):
        with pytest.raises(OSError, match="No space left"):
            made.flush()
    path.unlink()
    made.flush()
    assert path.read_text() == "update,mean\n1,2.0\n"


@pytest.mark.picture
def test_a_run_outlives_a_full_disk_and_says_what_it_could_not_write_in_the_end(start):
    def limit(size):
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    latest = RUN / "latest.safetensors"
    process = start(*QUICK, "--silent")
    wait_until(lambda: has_rows(RUN, 50))
    limit(2000)
    assert "cannot be written (File too large)" in process.stderr.readline()
    full = latest.read_bytes()
    time.sleep(0.5)
    assert latest.read_bytes() == full
    limit(resource.RLIM_INFINITY)
    assert "all pending files have been written" in process.stderr.readline()
    before = len((RUN / "progress.csv").read_text().splitlines())
    wait_until(lambda: read(latest).counters.update >= before)  # whose rows are there before
    updates = [line.split(",")[0] for line in (RUN / "progress.csv").read_text().splitlines()]
    assert updates[1:before] == [str(update) for update in range(1, before)]
    limit(2000)
    assert "cannot be written (File too large)" in process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 143
    complaint, command = err.splitlines()
    assert complaint.startswith(f"error: --run-dir {RUN}: after ")
    assert "latest.safetensors" in complaint
    assert "could not be written (File too large)" in complaint
    assert command.endswith(f" --restore {RUN}/latest.safetensors")
    assert before <= read(latest).counters.update < int(complaint.split()[4])


def test_a_reader_that_leaves_ends_the_run_as_a_signal_does(start):
    process = start(*ENDLESS, "--workers", 0)
    next(line for line in process.stdout if line.startswith("update 1 "))
    process.stdout.close()
    process.wait(60)
    assert process.returncode == 128 + signal.SIGPIPE
    line, command = process.stderr.read().splitlines()
    assert line.startswith(f"Interrupted after {len(rows())} update")
    assert command.endswith(f" --restore {RUN}/latest.safetensors")
    assert Path(RUN / "latest.safetensors").exists()
