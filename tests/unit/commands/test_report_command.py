"""What `report` and the command line itself say of mistakes, and where they wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from stallscope.commands.main import main
from stallscope.record.run import create_run
from stallscope.scenarios.planted import Step, train
from stallscope.tune.state import TUNE_JSON


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    train(tmp_path / "run", [[Step()] * 40])
    return tmp_path / "run"


def said(capsys: pytest.CaptureFixture[str], *words: str | Path) -> str:
    """What a command that is refused says on stderr."""
    try:
        code = main([str(word) for word in words])
    except SystemExit as end:
        code = int(end.code or 0)
    told = capsys.readouterr()
    assert (code, told.out) == (2, "")
    return " ".join(told.err.split())


@pytest.mark.parametrize("format_", ["text", "json", "markdown", "prometheus", "csv", "trace"])
def test_after_writing_to_a_file_its_path_is_said(
    format_: str, recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "out"
    assert main(["report", str(recorded), "--format", format_, "-o", str(file)]) == 0
    assert file.stat().st_size > 0
    told = capsys.readouterr()
    assert (told.out, told.err.splitlines()[-1]) == ("", f"written: {file}")


def test_what_goes_to_the_terminal_has_no_path(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(recorded), "--format", "csv"]) == 0
    assert main(["report", str(recorded), "-o", "-"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("format_", ["markdown", "csv", "trace", "prometheus"])
def test_a_tuning_is_called_so_where_it_has_no_such_format(
    format_: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tune").mkdir()
    (tmp_path / "tune" / TUNE_JSON).write_text("{}")
    create_run(tmp_path / "tune" / "first-stretch", {})
    told = said(capsys, "report", tmp_path / "tune", "--format", format_)
    assert "is a tuning" in told
    assert f"text, json or html, or name a recording in it, such as {tmp_path / 'tune' / 'first-stretch'}." in told


def test_gauges_of_a_run_without_steps_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    create_run(tmp_path / "run", {})
    told = said(capsys, "report", tmp_path / "run", "--format", "prometheus", "-o", tmp_path / "x.prom")
    assert "no training step was recorded" in told
    assert "--format json" in told
    assert not (tmp_path / "x.prom").exists()


def test_a_folder_that_is_a_file_is_refused_with_a_way_out(
    recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "my.py").write_text("pass")
    told = said(capsys, "report", recorded, "--format", "csv", "-o", f"{tmp_path / 'my.py'}/")
    assert "my.py/: File exists. Name another" in told
    assert (tmp_path / "my.py").read_text() == "pass"


@pytest.mark.parametrize(
    ("words", "way_out"),
    [
        ("repot runs/x", "unknown verb 'repot'. Did you mean report?"),
        ("compre ssd", "Did you mean compare?"),
        ("run --epochs 3 -- python my.py", "--epochs. Options of the training go after --."),
        ("tune --epochs 3 -- python my.py", "Options of the training go after --."),
        ("report --formt json x", "Did you mean --format?"),
        ("check x --forbid input.serail", "input.serail is not known. Did you mean input.serial?"),
        ("compare faults --cases input.seriel", "Did you mean"),
    ],
)
def test_a_slip_is_answered_with_what_was_meant(words: str, way_out: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert way_out in said(capsys, *words.split())


def test_what_is_like_nothing_is_not_guessed_at(capsys: pytest.CaptureFixture[str]) -> None:
    told = said(capsys, "xyzzy")
    assert "unknown verb 'xyzzy'. Verbs: run, attach" in told
    assert "options of the training" not in said(capsys, "report", "--zzzz", "x").lower()
