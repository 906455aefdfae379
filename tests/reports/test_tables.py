"""The tables of a run, read back as a whole and row by row, and carried on."""

import numpy as np
import pytest

from es.reports.record import COLUMNS
from es.reports.tables import TableReader, carry_on, read_progress, running_mean
from tests.records import write_progress


def test_means_leave_out_what_is_no_number_and_keep_their_digits():
    values = np.array([1.0, np.nan, 3.0, np.nan, np.nan, np.nan, 1e140, 5.0, 6.0, 7.0])
    means = running_mean(values, 3)
    expected = [1.0, 1.0, 2.0, 3.0, 3.0, np.nan, 1e140, 5e139, 1e140 / 3, 6.0]
    assert means == pytest.approx(expected, nan_ok=True)


def test_a_line_that_is_being_written_is_read_when_it_is_there(tmp_path):
    path = write_progress(tmp_path, 3)
    whole = path.read_text()
    last = whole.splitlines(keepends=True)[-1]
    path.write_text(whole.removesuffix(last))
    reader = TableReader(path)
    for torn, expected in (("", [1, 2]), (last[:7], []), (last[7:], [3]), ("", [])):
        with path.open("a") as file:
            file.write(torn)
        assert [row["update"] for row in reader.new_rows()] == expected
    path.write_text(whole + last[:7])
    assert read_progress(path)["update"].tolist() == [1, 2, 3]


def test_a_table_that_windows_has_written_is_read(tmp_path):
    path = write_progress(tmp_path, 3)
    expected = read_progress(path).tolist()
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert read_progress(path).tolist() == expected


@pytest.mark.parametrize(
    "odd",
    [b'"', b"x" * 200_000, b"9" * 200_000, b"2,b", b"", b"\0", b"\xff\0", b"\xc2\xb2,x",
     b"nan" + b",1" * (len(COLUMNS) - 1), b"3" + b",x" * (len(COLUMNS) - 1)],
)  # fmt: skip
def test_a_table_is_carried_on_without_gaps_torn_or_doubled_rows(tmp_path, odd):
    path = tmp_path / "progress.csv"
    carry_on(path, COLUMNS, 0)
    assert path.read_text() == ",".join(COLUMNS) + "\n"
    header, *rows = write_progress(tmp_path, 5).read_bytes().splitlines(keepends=True)
    path.write_bytes(header + b"".join([*rows[:2], odd + b"\n", rows[0], *rows[2:], b"6,24"]))
    carry_on(path, COLUMNS, 4)
    assert path.read_bytes() == header + b"".join(rows[:4])
    assert [each.name for each in tmp_path.iterdir()] == ["progress.csv"]
    assert read_progress(path)["update"].tolist() == [1, 2, 3, 4]
