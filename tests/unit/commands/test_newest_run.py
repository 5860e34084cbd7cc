"""A report without a run says which it took."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from whyidle.commands.main import main
from whyidle.record.latest import note_latest
from whyidle.scenarios.planted import Step, train


def test_a_report_of_the_newest_run_says_on_stderr_which_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    run = tmp_path / "run\x1b[2J"
    train(run, [[Step()] * 40])
    note_latest(run)
    assert main(["report", "--json"]) == 0
    told = capsys.readouterr()
    assert json.loads(told.out)["format"] == "whyidle-report"
    assert told.err == f"whyidle: the newest recording: {tmp_path}/run?[2J\n"
    assert main(["report", str(run), "--json"]) == 0
    assert "newest" not in capsys.readouterr().err


def test_where_the_newest_run_is_gone_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for verb in (["report"], ["live", "--once"]):
        assert main(verb) == 2
        assert "no recording was made on this machine yet" in capsys.readouterr().err
    note_latest(tmp_path / "gone")
    for verb in (["report"], ["live", "--once"]):
        assert main(verb) == 2
        said = capsys.readouterr().err
        assert f"the newest recording, {tmp_path}/gone, is not there any more. Name the folder of another" in said
