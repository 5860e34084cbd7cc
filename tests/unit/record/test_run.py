"""The run folder: its run.json, versions, damage."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from whyidle.errors import RecordError
from whyidle.record.comparison import CellRecord, is_comparison, read_comparison, write_comparison
from whyidle.record.run import create_run, open_run, update_run
from whyidle.record.schema import KINDS, STEP
from whyidle.record.segment import RecordWriter


def test_a_new_run_says_what_its_records_mean(tmp_path: Path) -> None:
    create_run(tmp_path / "run", {"device": {"kind": "cpu"}})
    info = open_run(tmp_path / "run").info
    assert info["device"] == {"kind": "cpu"}
    assert info["ended"] is None
    assert set(info["fields"]) == set(KINDS)
    units = {name: unit for name, _type, unit, _meaning in info["fields"]["step"]}
    assert units["fetch_begin_ns"] == "ns"
    assert units["copy_bytes"] == "bytes"
    assert units["samples"] == "count"


def test_updates_keep_the_rest(tmp_path: Path) -> None:
    create_run(tmp_path / "run", {"plan": {"steps": 3}})
    assert update_run(tmp_path / "run", {"ended": {"status": "ok"}})
    info = open_run(tmp_path / "run").info
    assert (info["plan"], info["ended"]) == ({"steps": 3}, {"status": "ok"})
    assert [p.name for p in (tmp_path / "run").iterdir()] == ["run.json"]


def test_a_folder_with_a_run_is_not_overwritten(tmp_path: Path) -> None:
    create_run(tmp_path / "run", {})
    with pytest.raises(RecordError, match="already holds a run"):
        create_run(tmp_path / "run", {})


def test_a_folder_without_run_and_an_unknown_version_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"is not a run folder: it has no run\.json"):
        open_run(tmp_path)
    create_run(tmp_path / "run", {"version": 7})
    with pytest.raises(RecordError, match="run format 7; this whyidle reads format 1"):
        open_run(tmp_path / "run")
    (tmp_path / "run" / "run.json").write_text('{"format": "other"}')
    with pytest.raises(RecordError, match="is not a whyidle run"):
        open_run(tmp_path / "run")
    (tmp_path / "run" / "run.json").write_text('{"form')
    with pytest.raises(RecordError, match="cannot read"):
        open_run(tmp_path / "run")


def test_updating_a_run_that_is_gone_says_no_and_raises_nothing(tmp_path: Path) -> None:
    assert not update_run(tmp_path / "gone", {"ended": {}})


def test_a_damaged_file_is_told_and_the_others_are_read(tmp_path: Path) -> None:
    folder = create_run(tmp_path / "run", {})
    writer = RecordWriter(folder, STEP)
    writer.append(*STEP.missing())
    writer.close()
    (folder / "step-9-1.rec").write_bytes(b"rubbish")
    run = open_run(folder)
    assert len(run.records(STEP)) == 1
    assert len(run.records(STEP)) == 1
    assert len(run.damaged) == 1
    assert "step-9-1.rec is not a whyidle record file" in run.damaged[0]


def test_a_comparison_comes_back_as_written(tmp_path: Path) -> None:
    cells = [CellRecord("naive", 8, "ok", None, ("naive-b8-r0",)), CellRecord("caffe", 8, "oom", "too big", ())]
    assert not is_comparison(tmp_path)
    write_comparison(tmp_path, {"net": "ssd300"}, cells)
    assert is_comparison(tmp_path)
    assert read_comparison(tmp_path) == ({"net": "ssd300"}, cells)
    path = tmp_path / "comparison.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"version": 9}))
    with pytest.raises(RecordError, match="version 9; this whyidle reads version 1"):
        read_comparison(tmp_path)


def test_what_would_act_on_a_terminal_is_replaced_and_damage_is_one_sentence(tmp_path: Path) -> None:
    create_run(tmp_path / "run", {"device": {"title": "\x1b[2Jevil\x07 µ"}})
    assert open_run(tmp_path / "run").info["device"]["title"] == "?[2Jevil? µ"
    (tmp_path / "run" / "run.json").write_text("[" * 200_000)
    with pytest.raises(RecordError, match="cannot read"):
        open_run(tmp_path / "run")
