"""`whyidle report --format trace|csv|parquet`, as a user calls it."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path
from typing import TextIO

import pytest

from support.crafted import amend
from support.runs import mistaken
from whyidle.commands.main import main
from whyidle.commands.report import TABLE_FILES
from whyidle.record.comparison import CellRecord, write_comparison
from whyidle.record.reader import Records
from whyidle.record.run import create_run, update_run
from whyidle.record.schema import NOT_MEASURED
from whyidle.report.export.table import Table, write_csv
from whyidle.scenarios.planted import MS, Step, train


@pytest.fixture
def run(tmp_path: Path) -> str:
    steps = [Step(fetch_ns=(60 if n == 30 else 4) * MS, compute_ns=5 * MS, copy_bytes=10**6) for n in range(60)]
    train(tmp_path / "run", [steps])
    return str(tmp_path / "run")


def report(*arguments: str) -> int:
    return main(["report", *arguments])


def test_a_trace_goes_to_a_file_and_says_what_it_shows(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    plain, packed = Path(run).parent / "t.json", Path(run).parent / "t.json.gz"
    assert report(run, "--format", "trace", "-o", str(plain)) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("trace of the whole run, 0.000 to ")
    assert report(run, "--format", "trace", "-o", str(packed)) == 0
    assert gzip.decompress(packed.read_bytes()) == plain.read_bytes()


def test_a_trace_that_was_cut_says_so(run: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    train(tmp_path / "long", [[Step(fetch_ns=MS, compute_ns=2 * MS, copy_bytes=10**6)] * 400])
    target = tmp_path / "cut.json"
    assert (
        report(str(tmp_path / "long"), "--format", "trace", "--from", "0", "--most-mb", "0.1", "-o", str(target)) == 0
    )
    said = " ".join(capsys.readouterr().err.split())
    assert "larger than asked for: name a shorter stretch, or a larger --most-mb" in said
    assert target.stat().st_size <= 100_000
    assert "cut" in json.loads(target.read_text())["otherData"]


def test_steps_that_the_device_never_finished_are_in_their_records_alone(
    run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def unfinished(steps: Records) -> None:
        steps["device_begin_ns"] = steps["device_end_ns"] = NOT_MEASURED

    amend(Path(run), unfinished)
    for path in Path(run).glob("event-*.rec"):
        path.unlink()
    said = mistaken(capsys, "report", run, "--format", "csv")
    assert "the device had finished none. `--format csv --table step_records` writes them as they were recorded" in said
    assert report(run, "--format", "csv", "-o", f"{tmp_path / 'all'}/") == 0
    assert "steps is left out: " in capsys.readouterr().err
    assert {path.stem for path in (tmp_path / "all").iterdir()} == {"step_records", "spans"}


def test_a_comparison_is_a_table_of_cells_and_runs(
    run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(tmp_path / "workers-b8-r0", [[Step()] * 30])
    train(tmp_path / "workers-b8-r1", [[Step(fetch_ns=20 * MS)] * 30])
    update_run(tmp_path / "workers-b8-r0", {"dataset": {"stand_in": "VOC"}})
    cells = [
        CellRecord("workers", 8, "ok", None, ("workers-b8-r0", "workers-b8-r1"), {"net": "=cmd()"}),
        CellRecord("naive", 8, "failed", "out\x1b[2J of luck", ()),
        CellRecord("naive", 16, "ok", None, ("naive-b16-r0",)),
    ]
    write_comparison(tmp_path, {"scenario": "ssd"}, cells)
    assert report(str(tmp_path), "--format", "csv") == 0
    first, second, failed, gone = csv.DictReader(capsys.readouterr().out.splitlines())
    assert float(second["samples_per_s"]) < float(first["samples_per_s"])
    assert first["axis_net"] == "'=cmd()"
    assert (failed["status"], failed["error"], failed["samples_per_s"]) == ("failed", "out?[2J of luck", "")
    assert (gone["run"], gone["steps"]) == ("naive-b16-r0", "")
    instead = "or name a run in it, such as"
    lacks = "is a comparison, which has no"
    said = mistaken(capsys, "report", str(tmp_path), "--format", "trace")
    assert f"{lacks} --format trace. It has text, json, html, markdown, csv, parquet; {instead}" in said
    said = mistaken(capsys, "report", str(tmp_path), "--format", "csv", "--table", "host")
    assert f"{lacks} table host. It has cells; {instead}" in said


def test_a_run_without_steps_names_what_there_is_instead(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    create_run(tmp_path / "empty", {})
    for format_ in ("csv", "trace"):
        said = mistaken(capsys, "report", str(tmp_path / "empty"), "--format", format_)
        assert "holds no step: nothing was trained, or whyidle did not see it. `--format csv --table host`" in said
    assert "holds no records: there is nothing to write" in mistaken(
        capsys, "report", str(tmp_path / "empty"), "--format", "csv", "-o", f"{tmp_path / 'all'}/"
    )
    assert report(str(tmp_path / "empty"), "--format", "csv", "--table", "host") == 0
    said = capsys.readouterr()
    assert said.out.startswith("rank,pid,seq,t_ns,")
    assert said.out.count("\n") == 1
    assert "the table has no rows" in said.err


def test_mistakes_are_answered_in_a_sentence(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = mistaken(capsys, "report", run, "--format", "trace", "--table", "steps")
    assert "--table belongs to --format csv and parquet" in said
    said = mistaken(capsys, "report", run, "--format", "trace", "--steps", "90:95")
    assert "no step from 90 to 95 was recorded; there are steps 0 to 59" in said


def test_a_file_that_could_not_be_finished_leaves_the_one_before(
    run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "steps.csv"
    target.write_text("before")

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setitem(TABLE_FILES, "csv", (full, False))
    assert report(run, "--format", "csv", "-o", str(target)) == 2
    assert target.read_text() == "before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "steps.csv"]


@pytest.mark.parametrize("held", ["file", "link", "other"])
def test_a_folder_that_holds_anything_is_left_as_it_was(
    run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], held: str
) -> None:
    tables = tmp_path / "tables"
    if held == "link":
        tables.symlink_to(tmp_path / "elsewhere")
        assert "cannot write into" in mistaken(capsys, "report", run, "--format", "csv", "-o", f"{tables}/")
        return
    tables.mkdir()
    (tables / ("steps.csv" if held == "file" else "notes.txt")).write_text("theirs")
    said = mistaken(capsys, "report", run, "--format", "csv", "-o", f"{tables}/")
    assert f"{tables} already holds files; an export overwrites none. Name a new folder with -o." in said
    assert [path.read_text() for path in tables.iterdir()] == ["theirs"]


@pytest.mark.parametrize("there", [True, False])
def test_an_export_that_fails_in_the_third_table_leaves_the_folder_as_it_was(
    run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], there: bool
) -> None:
    tables = tmp_path / "new" / "tables"
    if there:
        tables.mkdir(parents=True)
    calls = 0

    def full(table: Table, file: TextIO) -> int:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise OSError(28, "No space left on device")
        return write_csv(table, file)

    monkeypatch.setitem(TABLE_FILES, "csv", (full, False))
    assert f"cannot write into {tables}: No space left on device." in mistaken(
        capsys, "report", run, "--format", "csv", "-o", f"{tables}/"
    )
    assert calls == 3
    left = sorted(path.name for path in tmp_path.rglob("*") if not path.is_relative_to(run))
    assert left == (["new", "tables"] if there else ["new"])
