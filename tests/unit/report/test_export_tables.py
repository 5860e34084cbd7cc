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

from support.crafted import add, add_events, facts_of_run
from whyidle.analyse.run.analysis import analyse
from whyidle.analyse.timeline.timeline import timelines
from whyidle.record.names import Names
from whyidle.record.run import Run, create_run, open_run
from whyidle.record.schema import BATCH, HOST, KINDS, NOT_MEASURED, PAUSE, STEP, EventKind, Kind
from whyidle.report.export.raw import KINDS_OF_TABLES, raw_table
from whyidle.report.export.steps import steps_table
from whyidle.report.export.table import Table
from whyidle.report.export.table_files import GROUP_ROWS, write_csv, write_parquet
from whyidle.scenarios.planted import MS, Step, train

PARTS = ("compute", "input", "copy", "sync", "host", "boundary")


def csv_rows(table: Table) -> list[dict[str, str]]:
    file = io.StringIO(newline="")
    write_csv(table, file)
    file.seek(0)
    return list(csv.DictReader(file))


def steps_of(folder: Path) -> list[dict[str, str]]:
    run = open_run(folder)
    return csv_rows(steps_table(timelines(analyse(run), [run])))


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
def test_what_is_read_back_equals_what_was_recorded(drawn: tuple[Kind, list[dict[str, Any]]]) -> None:
    kind, rows = drawn
    with tempfile.TemporaryDirectory() as folder:
        create_run(Path(folder) / "run", {})
        add(Path(folder) / "run", kind, rows)
        run = open_run(Path(folder) / "run")
        recorded = run.records(kind)
        name = next(name for name, of in KINDS_OF_TABLES.items() if of is kind)
        read = csv_rows(raw_table(name, [run]))
        write_parquet(raw_table(name, [run]), Path(folder) / "t.parquet")
        columns = parquet.read_table(Path(folder) / "t.parquet").to_pydict()
    assert len(read) == len(rows) == len(columns["rank"])
    for field in kind.fields:
        for row, value in enumerate(recorded[field.name].tolist()):
            missing = value == NOT_MEASURED if field.type == "i8" else math.isnan(value)
            if missing:
                assert read[row][field.name] == ""
                assert columns[field.name][row] is None
            else:
                parse = int if field.type == "i8" else float
                assert parse(read[row][field.name]) == value
                assert columns[field.name][row] == value


def test_parquet_says_units_and_meanings_and_what_the_run_is(tmp_path: Path) -> None:
    create_run(tmp_path / "run", {"device": {"kind": "emulated"}, "dataset": {"stand_in": "ImageNet"}})
    add(tmp_path / "run", HOST, [{"t_ns": 1, "tree_rss_bytes": 5}])
    write_parquet(raw_table("host", [open_run(tmp_path / "run")]), tmp_path / "t.parquet")
    schema = parquet.read_schema(tmp_path / "t.parquet")
    assert (schema.metadata[b"device_kind"], schema.metadata[b"stand_in_data"]) == (b"emulated", b"ImageNet")
    assert schema.field("t_ns").metadata[b"unit"] == b"ns"
    meaning = b"resident memory of the tree, shared pages counted once per process"
    assert schema.field("tree_rss_bytes").metadata == {b"meaning": meaning, b"unit": b"bytes"}


def test_a_large_table_is_written_in_several_row_groups(tmp_path: Path) -> None:
    create_run(tmp_path / "run", {})
    add(tmp_path / "run", PAUSE, [{"step": 0, "what": 1}])
    add(tmp_path / "run", PAUSE, ({"step": n, "what": 1, "begin_ns": n} for n in range(1, GROUP_ROWS + 20_000)))
    rows = write_parquet(raw_table("pauses", [open_run(tmp_path / "run")]), tmp_path / "t.parquet")
    file = parquet.ParquetFile(tmp_path / "t.parquet")
    assert rows == GROUP_ROWS + 20_000
    assert file.metadata.num_row_groups == 2
    assert file.read(["step"]).column("step").to_pylist() == list(range(rows))


def test_numbers_come_with_what_they_stand_for(tmp_path: Path) -> None:
    create_run(tmp_path / "run", {})
    number = Names(tmp_path / "run").number("warm caches")
    add_events(tmp_path / "run", [(5, EventKind.PHASE, number, 9), (6, EventKind.EPOCH_BEGIN, 1, NOT_MEASURED)])
    phase, epoch = csv_rows(raw_table("events", [open_run(tmp_path / "run")]))
    assert (phase["what_text"], phase["value_text"]) == ("phase", "warm caches")
    assert (epoch["what_text"], epoch["value"], epoch["value_text"], epoch["end_ns"]) == ("epoch_begin", "1", "", "")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        *((name, f"'{name}") for name in ("=HYPERLINK(1)", "@SUM(A1)", "+1", "-1")),
        ('a,"b\x1b[31m\x07;c', 'a,"b?[31m?;c'),
    ],
)
def test_a_name_is_no_formula_in_a_spreadsheet_and_stays_in_its_cell(tmp_path: Path, name: str, told: str) -> None:
    create_run(tmp_path / "run", {})
    (tmp_path / "run" / "names.tsv").write_text(f"7\t{name}\n", newline="")
    add(tmp_path / "run", BATCH, [{"begin_ns": 1, "end_ns": 2, "slowest_name": 7}])
    (row,) = csv_rows(raw_table("batches", [open_run(tmp_path / "run")]))
    assert row["slowest_name_text"] == told


def test_the_parts_of_every_step_sum_to_the_stretch_they_share_out(tmp_path: Path) -> None:
    slow = Step(fetch_ns=30 * MS, compute_ns=12 * MS, copy_bytes=10**7, sync=True)
    plain = Step(fetch_ns=2 * MS, compute_ns=12 * MS, copy_bytes=10**7, host_ns=3 * MS)
    epoch = [slow if n % 7 == 3 else plain for n in range(40)]
    train(tmp_path / "run", [epoch, [Step(boundary_ns=20 * MS), *epoch[1:]]])
    rows = steps_of(tmp_path / "run")
    assert len(rows) == 80
    counted = [row for row in rows if row["warmup"] == "0"]
    assert all(row["compute_ms"] == "" for row in rows if row["warmup"] == "1")
    for row in counted:
        parts = [float(row[f"{part}_ms"]) for part in PARTS]
        assert sum(parts) + float(row["unseen_ms"]) == pytest.approx(float(row["blamed_ms"]), abs=1e-6)
        assert min(parts) >= 0
    facts = facts_of_run(tmp_path / "run")
    # On a device with a queue the stretches lie side by side: they are the window, but for what follows the last step.
    stretches = sum(float(row["blamed_ms"]) for row in counted)
    after = (facts.window.end_ns - int(facts.window.steps["device_end_ns"].max())) / MS
    assert stretches + after == pytest.approx(facts.window.wall_ns / MS, abs=1e-6)
    for part in ("compute", "input", "copy", "sync"):
        told = getattr(facts.parts, f"{part}_ns") / MS
        assert sum(float(row[f"{part}_ms"]) for row in counted) == pytest.approx(told, abs=1e-6), part


def batches_of(folder: Path, workers: int, **more: int) -> list[dict[str, str]]:
    """The steps of a run whose batches were made while it fetched them."""
    steps = open_run(folder).records(STEP)
    made = [
        {"step": step, "worker": step % max(1, workers), "begin_ns": begin, "end_ns": end} | more
        for step, begin, end in steps[["step", "fetch_begin_ns", "fetch_end_ns"]].tolist()
    ]
    add(folder, BATCH, made)
    add_events(folder, [(made[0]["begin_ns"], EventKind.LOADER_WORKERS, workers, NOT_MEASURED)])
    return steps_of(folder)


def test_a_step_that_waited_for_data_says_so_and_who_made_its_batch(tmp_path: Path) -> None:
    steps = [Step(fetch_ns=(90 if n == 20 else 10) * MS, compute_ns=5 * MS) for n in range(40)]
    train(tmp_path / "run", [steps])
    rows = batches_of(tmp_path / "run", 2, read_ns=2 * MS)
    waited = max((row for row in rows if row["warmup"] == "0"), key=lambda row: float(row["input_ms"]))
    assert waited["step"] == "20"
    assert float(waited["making_ms"]) == float(waited["fetch_ms"]) == 90
    assert (waited["read_ms"], waited["decode_ms"]) == ("2.0", "")
    assert [row["worker"] for row in rows] == [str(n % 2) for n in range(40)]
    assert {row["device_kind"] for row in rows} == {"emulated"}


def test_a_batch_made_in_the_training_process_has_no_worker_and_what_was_not_measured_is_empty(tmp_path: Path) -> None:
    train(tmp_path / "run", [[Step(fetch_ns=10 * MS)] * 40])
    row = steps_of(tmp_path / "run")[10]
    assert row["worker"] == row["making_ms"] == row["untold_ms"] == row["queue_ready"] == ""
    rows = batches_of(tmp_path / "run", 0)
    assert {(row["worker"], float(row["making_ms"])) for row in rows} == {("", 10.0)}


def test_a_torn_file_gives_its_whole_records(tmp_path: Path) -> None:
    train(tmp_path / "run", [[Step()] * 30])
    (path,) = (tmp_path / "run").glob("step-*.rec")
    path.write_bytes(path.read_bytes()[:-100])
    run: Run = open_run(tmp_path / "run")
    assert len(csv_rows(raw_table("step_records", [run]))) == 29
    assert len(steps_of(tmp_path / "run")) == 29
