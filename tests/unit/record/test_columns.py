"""Records by column say what the same records say as rows."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest

from whyidle.record.reader import (
    FEW_ROWS,
    Columns,
    RecordFile,
    Records,
    Rows,
    by_column,
    only,
    read_all,
    reuse_memory,
    with_column,
)
from whyidle.record.schema import HOST, NOT_MEASURED
from whyidle.record.segment import RecordWriter

COUNT = 1000


@pytest.fixture
def rows() -> Rows:
    found = np.zeros(COUNT, dtype=HOST.dtype)
    # Of two files.
    found["seq"] = np.concatenate((np.arange(1, 302), np.arange(1, COUNT - 300)))
    found["t_ns"] = np.arange(COUNT) * 7
    found["late_ns"] = NOT_MEASURED
    found["steal_pct"] = np.nan
    found["machine_busy_pct"][600:] = 3.5
    return found


@pytest.fixture
def columns(rows: Rows) -> Columns:
    return by_column(np.split(rows, (300, 301, 500)), HOST, 2 * COUNT)


def test_all_fields_come_back(rows: Rows, columns: Columns) -> None:
    assert np.array(columns).tobytes() == rows.tobytes()
    assert (len(columns), columns.size) == (COUNT, COUNT)
    assert columns[5].tobytes() == rows[5].tobytes()


@pytest.mark.parametrize(
    "which",
    [
        slice(3, None),
        slice(None, None, -2),
        np.arange(COUNT) > 4,
        np.arange(COUNT) % 3 == 1,
        np.ones(COUNT, dtype=bool),
        np.zeros(COUNT, dtype=bool),
        np.array([9, 2, 2, -1]),
        np.empty(0, dtype=np.int64),
    ],
)
def test_a_selection_of_a_selection_is_that_of_rows(which: np.ndarray, rows: Rows, columns: Columns) -> None:
    assert np.array(columns[which]).tobytes() == rows[which].tobytes()
    assert np.array(columns[which][1:]).tobytes() == rows[which][1:].tobytes()


def test_a_field_that_never_changes_takes_no_memory(columns: Columns) -> None:
    assert columns["late_ns"].strides == columns[::2]["late_ns"].strides == (0,)
    assert columns["t_ns"].strides == (8,)


def test_nothing_is_written_into_columns(rows: Rows, columns: Columns) -> None:
    for records in (columns, columns[::2]):
        with pytest.raises(ValueError, match="read-only"):
            records["t_ns"][0] = 1
    assert with_column(columns, "t_ns", rows["t_ns"] + 1)["t_ns"][0] == 1
    assert columns["t_ns"][0] == 0


def test_many_records_are_read_by_column_and_few_as_rows(tmp_path: Path) -> None:
    for kept in (FEW_ROWS, FEW_ROWS + 1):
        writer = RecordWriter(tmp_path, HOST, 0, kept)
        body = HOST.missing()
        for number in range(kept):
            body[0] = number
            writer.append(*body)
        writer.close()
        read = read_all([RecordFile(writer.path)], HOST)
        assert isinstance(read, Columns) is (kept > FEW_ROWS)
        assert read["t_ns"].tolist() == list(range(kept))


@pytest.mark.parametrize("by_column", [False, True])
def test_some_fields_alone_hold_on_to_no_others(rows: Rows, columns: Columns, by_column: bool) -> None:
    records: Records = columns[5:] if by_column else rows[5:]
    kept = only(records, ("t_ns", "late_ns"))
    assert len(kept) == COUNT - 5
    assert (kept[3:]["t_ns"] == rows["t_ns"][8:]).all()
    assert (kept["late_ns"] == NOT_MEASURED).all()
    with pytest.raises(ValueError, match="steal_pct"):
        kept["steal_pct"]


def test_another_c_library_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    reuse_memory()
