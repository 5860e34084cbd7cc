"""Which run a command looks at, and how it is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.jobs import Rank, record
from whyidle.commands.main import main
from whyidle.record.latest import note_latest
from whyidle.record.run import update_run
from whyidle.report.words.command import LONGEST, command_line
from whyidle.scenarios.planted import MS

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
        (["python", "train.py", *(["--flag"] * 50)], f"python train.py {'--flag ' * 50}"[: LONGEST - 1] + "…"),
    ],
)
def test_a_command_keeps_its_arguments_and_loses_the_folders_of_programs(parts: list[str] | None, line: str) -> None:
    assert command_line(parts) == line


def said(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    assert main([str(argument) for argument in arguments]) == 2
    return capsys.readouterr().err


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


def test_report_takes_the_folder_around_the_hosts_folders_or_each_of_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = record(tmp_path / "job", [Rank(), Rank(fetch_ns=21 * MS, host="beta")], shifts={"beta": 10**15}, apart=True)
    verdicts = []
    for folders in ([tmp_path / "job"], job.folders, job.folders[::-1]):
        assert main(["report", "--json", *map(str, folders)]) == 0
        found = json.loads(capsys.readouterr().out)
        assert [entry["host"] for entry in found["ranks_detail"]] == ["alpha", "beta"]
        verdicts.append(found["verdict"])
    assert verdicts[0]["cause"] == "rank.straggler"
    assert verdicts == [verdicts[0]] * 3


def test_report_refuses_folders_of_different_jobs_in_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("one", "two"):
        record(tmp_path / name, [Rank(), Rank()])
    told = " ".join(said(capsys, "report", tmp_path / "one", tmp_path / "two").split())
    assert f"rank 0 is both in {tmp_path / 'one'} and in {tmp_path / 'two'}: these are different jobs." in told
