"""Which run a command looks at, and how it is named."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from support.jobs import Rank, record
from whyidle.commands.main import main
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
        (["python", "train.py", *(["--flag"] * 50)], f"python train.py {'--flag ' * 50}"[: LONGEST - 1] + "…"),
    ],
)
def test_a_command_loses_the_folders_of_programs(parts: list[str] | None, line: str) -> None:
    assert command_line(parts) == line


def said(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    assert main([str(argument) for argument in arguments]) == 2
    return capsys.readouterr().err


def test_a_folder_of_runs_lists_the_newest_ten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(12):
        folder = tmp_path / f"run{number:02}"
        record(folder, [Rank()], 5, world_size=None)
        began = datetime(2026, 1, 2, 3, number).astimezone().timestamp()
        clock = {"time_ns": int(began * 1e9), "monotonic_ns": 0}
        update_run(folder, {"clock": clock, "command": ["python", f"t{number}.py"]})
    # Two that do not say when they began.
    update_run(tmp_path / "run09", {"clock": {"time_ns": 10**40}})
    update_run(tmp_path / "run00", {"clock": {"time_ns": "soon"}})
    lines = said(capsys, "report", tmp_path).splitlines()
    assert "holds 12 runs" in lines[0]
    assert f"whyidle report {tmp_path / 'run11'}" in lines[0]
    assert [line.split()[2] for line in lines[1:-1]] == [f"run{number:02}" for number in (11, 10, *range(8, 0, -1))]
    assert lines[1].split() == ["2026-01-02", "03:11", "run11", "python", "t11.py"]
    assert lines[-1].strip() == "and 2 more"
