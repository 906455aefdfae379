import csv
import math

import numpy as np
import pytest
from tensorboard.plugins.hparams.metadata import (
    parse_experiment_plugin_data,
    parse_session_start_info_plugin_data,
)
from tensorboard.util.tensor_util import make_ndarray

from es.reports.record import COLUMNS, describe_evaluation
from es.reports.tensorboard import Settings
from tests.records import (
    RETURNS,
    counters_after,
    evaluation,
    events_of,
    files_of,
    png,
    record,
    scalars,
    write,
)


def table(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_csv_and_tensorboard_carry_on_without_gaps_or_doubled_steps(tmp_path):
    files = files_of(tmp_path)
    write(files, *map(record, (1, 2, 3, 4)))
    files.close()
    files = files_of(tmp_path, 2)  # the checkpoint knows of two
    write(files, *map(record, (3, 4, 5)), evaluation(5))
    files.close()
    rows = table(tmp_path / "progress.csv")
    assert list(rows[0]) == list(COLUMNS)
    assert [int(row["update"]) for row in rows] == [1, 2, 3, 4, 5]
    assert [float(row["return_mean"]) for row in rows] == [11.0, 12.0, 13.0, 14.0, 15.0]
    found = scalars(tmp_path)
    assert found["returns/return_mean"] == [(100 * n, 10.0 + n) for n in range(1, 6)]
    assert found["progress/update"] == [(100 * n, n) for n in range(1, 6)]
    assert found["evaluation/return_mean"] == [(500, 6.0)]
    drawn = {tag.split("/")[1] for tag in found if not tag.startswith("evaluation")}
    assert drawn == set(COLUMNS)


@pytest.mark.parametrize("update", [0, 2])
def test_what_was_written_after_the_checkpoint_is_dropped(tmp_path, update):
    files = files_of(tmp_path)
    for number in (1, 2, 3):
        write(files, record(number), evaluation(number))
    files.close()
    files_of(tmp_path, update).close()
    kept, found = [100 * each for each in range(1, update + 1)], scalars(tmp_path)
    assert [step for step, _ in found["returns/return_mean"]] == kept
    assert [step for step, _ in found["evaluation/return_mean"]] == kept
    assert [event.step for event in events_of(tmp_path).Tensors("returns/population")] == kept
    for name in ("progress.csv", "evaluations.csv"):
        assert len(table(tmp_path / name)) == update


def test_evaluations_have_rows_that_stand_in_for_those_of_their_updates(tmp_path):
    files = files_of(tmp_path)
    write(files, record(1))
    assert not (tmp_path / "evaluations.csv").exists()
    write(files, evaluation(1), record(2), evaluation(2))
    files.close()
    files = files_of(tmp_path, 2)
    write(files, evaluation(2), record(3), evaluation(3))  # the first is played again
    files.close()
    first, _, last = table(tmp_path / "evaluations.csv")
    assert first == {
        "update": "1", "frames": "100", "wall_seconds": "1.5", "episodes": "2",
        "mean": "2.0", "std": "1.0", "min": "1.0", "max": "3.0", "returns": "1.0 3.0",
    }  # fmt: skip
    for name in ("update", "frames", "wall_seconds"):
        assert last[name] == table(tmp_path / "progress.csv")[2][name]
    assert len(scalars(tmp_path)["evaluation/return_max"]) == 3


def test_an_evaluation_of_what_is_no_number_is_a_row(tmp_path):
    files = files_of(tmp_path)
    write(files, describe_evaluation(counters_after(1), [math.nan, 2.0]))
    files.close()
    (row,) = table(tmp_path / "evaluations.csv")
    assert (row["mean"], row["min"], row["returns"]) == ("nan", "nan", "nan 2.0")
    files_of(tmp_path, 1).close()
    assert len(table(tmp_path / "evaluations.csv")) == 1


def test_a_file_that_was_deleted_is_made_again_and_that_is_said(tmp_path):
    said: list[str] = []
    files = files_of(tmp_path, warn=said.append)
    write(files, record(1), evaluation(1))
    (events,) = tmp_path.glob("events*")
    for path in (tmp_path / "progress.csv", tmp_path / "evaluations.csv", events):
        path.unlink()
    for update in (2, 3):
        write(files, record(update), evaluation(update))
    files.close()
    for name in ("progress.csv", "evaluations.csv"):
        assert [row["update"] for row in table(tmp_path / name)] == ["2", "3"]
    assert [step for step, _ in scalars(tmp_path)["returns/return_mean"]] == [200, 300]
    assert len(said) == 3
    assert said[0].startswith("progress.csv: it was moved, deleted or replaced")


def test_no_file_is_made_again_in_a_directory_that_is_not_the_runs(tmp_path):
    def check():
        raise OSError("another's")

    files = files_of(tmp_path)
    files.csv.write(b"1\n")
    files.csv.flush()
    (tmp_path / "progress.csv").unlink()
    files.csv._place = files.csv._place._replace(check=check)
    for _ in range(2):
        with pytest.raises(OSError, match="another's"):
            files.csv.flush()
    files.close()
    assert not (tmp_path / "progress.csv").exists()


@pytest.mark.parametrize("left", range(0, 900, 110))
def test_torn_files_of_a_killed_run_are_carried_on(tmp_path, left):
    files = files_of(tmp_path)
    write(files, record(1))
    (events,) = tmp_path.glob("events*")
    size = events.stat().st_size
    write(files, record(2))
    files.close()
    rows = tmp_path / "progress.csv"
    rows.write_text(rows.read_text()[: -1 - left % 50])
    events.write_bytes(events.read_bytes()[: size + left])
    files = files_of(tmp_path, 1)
    write(files, record(2))
    files.close()
    assert [row["update"] for row in table(rows)] == ["1", "2"]
    assert [step for step, _ in scalars(tmp_path)["returns/return_mean"]] == [100, 200]


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

    files = files_of(tmp_path)
    write(files, record(1))
    full = [Full(files.csv._file), Full(files.events._file)]
    files.csv._file, files.events._file = full  # type: ignore
    for number in (2, 3):
        files.add(record(number), RETURNS)
        for file in (files.csv, files.events):
            with pytest.raises(OSError, match="full"):
                file.flush()
    for each in full:
        each.room = 10**9
    write(files, record(4))
    files.close()
    assert [row["update"] for row in table(tmp_path / "progress.csv")] == ["1", "2", "3", "4"]
    assert [step for step, _ in scalars(tmp_path)["returns/return_mean"]] == [100, 200, 300, 400]


def test_the_distribution_of_the_returns_is_among_the_events(tmp_path):
    """Of those that are numbers; a killed run that is carried on doubles none."""
    files = files_of(tmp_path)
    for update in (1, 2, 3):
        write(files, record(update))
    files.close()
    files = files_of(tmp_path, 2)
    for update, returns in ((3, [np.inf] * 3), (4, [1e308, -1e308]), (5, [7.0] * 3), (6, [])):
        files.add(record(update), np.array(returns))
    files.events.flush()
    files.close()
    found = events_of(tmp_path).Tensors("returns/population")
    assert [event.step for event in found] == [100, 200, 500]
    buckets = make_ndarray(found[0].tensor_proto)  # left edge, right edge, count
    assert (buckets[0, 0], buckets[-1, 1]) == (5.0, 15.0)
    assert [index for index, count in enumerate(buckets[:, 2]) if count] == [0, 10, 19]
    assert make_ndarray(found[2].tensor_proto)[:, 2].sum() == 3


def test_pictures_and_settings_are_among_the_events(tmp_path):
    files = files_of(tmp_path)
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
