"""Which run a command looks at, and how it is named."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from support.jobs import Rank, record
from whyidle.commands.main import main
from whyidle.record.latest import note_latest
from whyidle.record.run import update_run
from whyidle.report.words.code import LONGEST, command_line

EPOCHS = ["--epochs", "20", "--batch-size", "8"]


@pytest.mark.parametrize(
    ("parts", "line"),
    [
        (["/opt/venv/bin/python", "train.py", *EPOCHS], "python train.py --epochs 20 --batch-size 8"),
        (["/v/bin/python3", "/v/bin/torchrun", "train.py"], "python3 torchrun train.py"),
        (["python", "a/train.py"], "python a/train.py"),
        (["python", f"/{'long/' * 20}train.py", *EPOCHS], "python train.py --epochs 20 --batch-size 8"),
        (["./"], "./"),
        (None, "run"),
    ],
)
def test_a_command_keeps_its_arguments_and_loses_the_folders_of_programs(parts: list[str] | None, line: str) -> None:
    assert command_line(parts) == line


def test_a_very_long_command_is_cut() -> None:
    line = command_line(["python", "train.py", *(["--flag"] * 50)])
    assert len(line) == LONGEST
    assert line.endswith("…")


def said(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    assert main([str(argument) for argument in arguments]) == 2
    return capsys.readouterr().err


@pytest.mark.parametrize("verb", [("report",), ("live", "--once")], ids=" ".join)
def test_what_is_no_run_folder_is_named_for_what_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: tuple[str, ...]
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    assert "nosuch does not exist." in said(capsys, *verb, tmp_path / "nosuch")
    assert "file is a file, not a run folder." in said(capsys, *verb, tmp_path / "file")
    text = said(capsys, *verb, tmp_path / "folder")
    assert "folder is not a run folder: it has no run.json." in text
    assert "`whyidle run`, `attach` or `compare`" in text


def test_a_folder_of_many_runs_lists_the_newest_ten_of_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(12):
        folder = tmp_path / f"run{number:02}"
        record(folder, [Rank()], 5, world_size=None)
        update_run(folder, {"started_at": f"2026-01-02T03:{number:02}:00", "command": ["python", f"t{number}.py"]})
    lines = said(capsys, "report", tmp_path).splitlines()
    assert "holds 12 runs" in lines[0]
    assert f"whyidle report {tmp_path / 'run11'}" in lines[0]
    assert [line.split()[2] for line in lines[1:-1]] == [f"run{number:02}" for number in range(11, 1, -1)]
    assert lines[1].split() == ["2026-01-02", "03:11", "run11", "python", "t11.py"]
    assert lines[-1].strip() == "and 2 more"


def test_without_a_folder_the_newest_recording_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert "Start one with `whyidle run -- python train.py`" in said(capsys, "report")
    for name in ("old", "new"):
        record(tmp_path / name, [Rank()], 40)
        update_run(tmp_path / name, {"id": name})
        note_latest(tmp_path / name)
    assert main(["report", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["run"]["id"] == "new"


def test_live_takes_the_newest_run_of_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("old", "new"):
        record(tmp_path / name, [Rank()], 40)
        update_run(tmp_path / name, {"command": [name]})
    os.utime(tmp_path / "new" / "run.json")
    assert main(["live", "--once", str(tmp_path)]) == 0
    assert capsys.readouterr().out.split()[0] == "new"


def test_an_option_that_a_verb_does_not_know_shows_that_verbs_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["run", "--foo", "--", "true"])
    text = capsys.readouterr().err
    assert text.startswith("usage: whyidle run [options] -- COMMAND")
    assert "unrecognized arguments: --foo" in text
