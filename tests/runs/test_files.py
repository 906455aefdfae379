import csv

import numpy as np
import pytest
from tensorboard.plugins.hparams.metadata import (
    parse_experiment_plugin_data,
    parse_session_start_info_plugin_data,
)
from tensorboard.util.tensor_util import make_ndarray

from es.reports.files import ProgressFiles
from es.reports.record import COLUMNS
from es.reports.tensorboard import Settings
from tests.records import RETURNS, events_of, png, record, scalars, write


def test_csv_and_tensorboard_carry_on_without_gaps_or_doubled_steps(tmp_path):
    files = ProgressFiles(tmp_path, 0)
    for update in (1, 2, 3, 4):
        write(files, record(update))
    files.close()
    files = ProgressFiles(tmp_path, 2)  # the checkpoint knows of two
    for update in (3, 4, 5):
        write(files, record(update))
    files.add_evaluation(5, 1.0, 0.5)
    files.events.flush()
    files.close()
    with (tmp_path / "progress.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == list(COLUMNS)
    assert [int(row["update"]) for row in rows] == [1, 2, 3, 4, 5]
    assert [float(row["return_mean"]) for row in rows] == [11.0, 12.0, 13.0, 14.0, 15.0]
    found = scalars(tmp_path)
    assert found["returns/return_mean"] == [(n, 10.0 + n) for n in range(1, 6)]
    assert found["evaluation/return_mean"] == [(5, 1.0)]
    drawn = {tag.split("/")[1] for tag in found if not tag.startswith("evaluation")}
    assert drawn == set(COLUMNS) - {"update"}


@pytest.mark.parametrize("update", [0, 2])
def test_what_was_written_after_the_checkpoint_is_dropped(tmp_path, update):
    files = ProgressFiles(tmp_path, 0)
    for number in (1, 2, 3):
        write(files, record(number))
        files.add_evaluation(number, 1.0, 0.5)
    files.events.flush()
    files.close()
    ProgressFiles(tmp_path, update).close()
    kept, found = [*range(1, update + 1)], scalars(tmp_path)
    assert [step for step, _ in found["returns/return_mean"]] == kept
    assert [step for step, _ in found["evaluation/return_mean"]] == kept
    assert [event.step for event in events_of(tmp_path).Tensors("returns/population")] == kept
    assert len((tmp_path / "progress.csv").read_text().splitlines()) == 1 + update


@pytest.mark.parametrize("left", range(0, 900, 110))
def test_torn_files_of_a_killed_run_are_carried_on(tmp_path, left):
    files = ProgressFiles(tmp_path, 0)
    write(files, record(1))
    (events,) = tmp_path.glob("events*")
    size = events.stat().st_size
    write(files, record(2))
    files.close()
    table = tmp_path / "progress.csv"
    table.write_text(table.read_text()[: -1 - left % 50])
    events.write_bytes(events.read_bytes()[: size + left])
    files = ProgressFiles(tmp_path, 1)
    write(files, record(2))
    files.close()
    with table.open(newline="") as file:
        assert [row["update"] for row in csv.DictReader(file)] == ["1", "2"]
    assert [step for step, _ in scalars(tmp_path)["returns/return_mean"]] == [1, 2]


def test_what_a_full_disk_took_in_part_is_completed_later(tmp_path):
    class Full:
        def __init__(self, file):
            self.file, self.room = file, 50

        def write(self, data):
            if not self.room:
                raise OSError("full")
            taken = self.file.write(data[: self.room])
            self.room -= taken
            return taken

        def fileno(self):
            return self.file.fileno()

        def close(self):
            self.file.close()

    files = ProgressFiles(tmp_path, 0)
    full = [Full(files.csv._file), Full(files.events._file)]
    files.csv._file, files.events._file = full  # type: ignore
    for number in (1, 2, 3):
        files.add(record(number), RETURNS)
        for file in (files.csv, files.events):
            with pytest.raises(OSError, match="full"):
                file.flush()
    for each in full:
        each.room = 10**9
    write(files, record(4))
    files.close()
    with (tmp_path / "progress.csv").open(newline="") as file:
        assert [row["update"] for row in csv.DictReader(file)] == ["1", "2", "3", "4"]
    assert [step for step, _ in scalars(tmp_path)["returns/return_mean"]] == [1, 2, 3, 4]


def test_the_distribution_of_the_returns_is_among_the_events(tmp_path):
    """Of those that are numbers; a killed run that is carried on doubles none."""
    files = ProgressFiles(tmp_path, 0)
    for update in (1, 2, 3):
        write(files, record(update))
    files.close()
    files = ProgressFiles(tmp_path, 2)
    for update, returns in ((3, [np.inf] * 3), (4, [1e308, -1e308]), (5, [7.0] * 3), (6, [])):
        files.add(record(update), np.array(returns))
    files.events.flush()
    files.close()
    found = events_of(tmp_path).Tensors("returns/population")
    assert [event.step for event in found] == [1, 2, 5]
    buckets = make_ndarray(found[0].tensor_proto)  # left edge, right edge, count
    assert (buckets[0, 0], buckets[-1, 1]) == (5.0, 15.0)
    assert [index for index, count in enumerate(buckets[:, 2]) if count] == [0, 10, 19]
    assert make_ndarray(found[2].tensor_proto)[:, 2].sum() == 3


def test_pictures_and_settings_are_among_the_events(tmp_path):
    files = ProgressFiles(tmp_path, 0)
    settings: Settings = {"lr": 0.5, "vbn": True, "shaping": "nes", "sigma_min": None}
    files.events.add_hyperparameters(settings, ["returns/unperturbed_return"])
    files.events.add_image("learning_curve", png(3, 2), 7)
    files.events.flush()
    files.close()
    events = events_of(tmp_path)
    (image,) = events.Tensors("learning_curve")
    assert (image.step, image.tensor_proto.string_val[2]) == (7, png(3, 2))
    content = events.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    started = parse_session_start_info_plugin_data(content).hparams
    assert {name: started[name].WhichOneof("kind") for name in started} == {
        "lr": "number_value", "vbn": "bool_value", "shaping": "string_value"
    }  # fmt: skip
    assert started["lr"].number_value == 0.5
    content = events.SummaryMetadata("_hparams_/experiment").plugin_data.content
    table = parse_experiment_plugin_data(content)
    assert [info.name for info in table.hparam_infos] == list(settings)
    assert [info.name.tag for info in table.metric_infos] == ["returns/unperturbed_return"]
