"""Tables as CSV and Parquet: what is read back is what was recorded."""

from __future__ import annotations

import csv
import io
import math
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from support.crafted import add
from whyidle.record.run import create_run, open_run
from whyidle.record.schema import BATCH, KINDS, NOT_MEASURED, PAUSE, Kind
from whyidle.report.export.table import (
    GROUP_ROWS,
    KINDS_OF_TABLES,
    UNITLESS,
    Table,
    raw_table,
    write_csv,
    write_parquet,
)


def csv_rows(table: Table) -> list[dict[str, str]]:
    file = io.StringIO(newline="")
    write_csv(table, file)
    file.seek(0)
    return list(csv.DictReader(file))


VALUES = {
    "i8": st.one_of(
        st.just(NOT_MEASURED), st.integers(-(2**63) + 1, 2**63 - 1), st.sampled_from([0, -1, 2**63 - 1, 2**53 + 1])
    ),
    "f8": st.one_of(st.just(math.nan), st.floats(allow_nan=False), st.sampled_from([5e-324, 1.7976931348623157e308])),
}


@st.composite
def records(draw: st.DrawFn) -> tuple[Kind, list[dict[str, Any]]]:
    kind = KINDS[draw(st.sampled_from(["batch", "device", "pause", "event"]))]
    fields = draw(st.lists(st.sampled_from(kind.fields[1:]), min_size=1, max_size=4, unique=True))
    row = st.fixed_dictionaries({field.name: VALUES[field.type] for field in fields})
    return kind, draw(st.lists(row, min_size=1, max_size=8))


@given(records())
def test_what_is_read_back_is_what_was_recorded(drawn: tuple[Kind, list[dict[str, Any]]]) -> None:
    kind, rows = drawn
    with tempfile.TemporaryDirectory() as folder:
        create_run(Path(folder) / "run", {"device": {"kind": "emulated"}, "dataset": {"stand_in": "ImageNet"}})
        add(Path(folder) / "run", kind, rows)
        run = open_run(Path(folder) / "run")
        recorded = run.records(kind)
        name = next(name for name, of in KINDS_OF_TABLES.items() if of is kind)
        read = csv_rows(raw_table(name, [run]))
        write_parquet(raw_table(name, [run]), Path(folder) / "t.parquet")
        table = parquet.read_table(Path(folder) / "t.parquet")
        columns = table.to_pydict()
    # Parquet says units and meanings, and what the run is.
    about = table.schema.metadata
    assert (about[b"device_kind"], about[b"stand_in_data"]) == (b"emulated", b"ImageNet")
    assert len(read) == len(rows) == len(columns["rank"])
    for field in kind.fields:
        unit = {} if field.unit in UNITLESS else {b"unit": field.unit.encode()}
        assert table.schema.field(field.name).metadata == {b"meaning": field.meaning.encode()} | unit
        for row, value in enumerate(recorded[field.name].tolist()):
            missing = value == NOT_MEASURED if field.type == "i8" else math.isnan(value)
            if missing:
                assert read[row][field.name] == ""
                assert columns[field.name][row] is None
            else:
                parse = int if field.type == "i8" else float
                assert parse(read[row][field.name]) == value
                assert columns[field.name][row] == value


def test_a_large_table_is_written_in_several_row_groups(tmp_path: Path) -> None:
    create_run(tmp_path / "run", {})
    add(tmp_path / "run", PAUSE, [{"step": 0, "what": 1}])
    add(tmp_path / "run", PAUSE, ({"step": n, "what": 1, "begin_ns": n} for n in range(1, GROUP_ROWS + 20_000)))
    rows = write_parquet(raw_table("pauses", [open_run(tmp_path / "run")]), tmp_path / "t.parquet")
    file = parquet.ParquetFile(tmp_path / "t.parquet")
    assert rows == GROUP_ROWS + 20_000
    assert file.metadata.num_row_groups == 2
    assert file.read(["step"]).column("step").to_pylist() == list(range(rows))


@pytest.mark.parametrize(
    ("name", "told"),
    [
        *((name, f"'{name}") for name in ("=HYPERLINK(1)", "@SUM(A1)", "+1", "-1")),
        ('a,"b\x1b[31m\x07;c', 'a,"b?[31m?;c'),
    ],
)
def test_a_name_is_no_formula_and_stays_in_its_cell(tmp_path: Path, name: str, told: str) -> None:
    create_run(tmp_path / "run", {})
    (tmp_path / "run" / "names.tsv").write_text(f"7\t{name}\n", newline="")
    add(tmp_path / "run", BATCH, [{"begin_ns": 1, "end_ns": 2, "slowest_name": 7}])
    (row,) = csv_rows(raw_table("batches", [open_run(tmp_path / "run")]))
    assert row["slowest_name_text"] == told
