"""Jobs of several ranks in words, and the command that reads their folders."""

from __future__ import annotations

import io
import json
from itertools import takewhile
from pathlib import Path

import pytest
from rich.console import Console

from support.jobs import Rank, record
from support.rendered import rendered
from whyidle.analyse.recent.reader import RecentReader
from whyidle.analyse.run.analysis import analyse
from whyidle.commands.main import main
from whyidle.record.run import open_run, update_run
from whyidle.report import live
from whyidle.report.documents.run import run_document
from whyidle.scenarios.planted import MS


def printed(folder: Path, width: int = 80) -> str:
    return rendered(run_document(analyse(open_run(folder))), width)


def table(shown: str) -> list[list[str]]:
    """The rows of the section on ranks."""
    lines = iter(shown.splitlines())
    next(line for line in lines if line == "Ranks")
    section = list(takewhile(str.strip, lines))
    return [line.split() for line in section if line.split()[0].isdigit()]


def test_a_job_shows_its_ranks_side_by_side_and_sums_them(tmp_path: Path) -> None:
    record(tmp_path / "run", [Rank(), Rank(fetch_ns=21 * MS, host="beta")])
    shown = printed(tmp_path / "run")
    assert all(len(line) <= 80 for line in shown.splitlines())
    assert "2 ranks: 524.6 samples/s" in " ".join(shown.split())
    assert "averaged over 2 ranks" in shown
    assert "Within computing, ranks wait for the last of them 32.8 % of the time." in shown
    rows = table(shown)
    assert rows[0] == ["0", "alpha", "262.3", "3.3", "96.7", "0.0", "20.0", "none"]
    assert rows[1] == ["1", "beta", "262.3", "68.9", "31.1", "20.0", "0.0", "input.serial"]


def test_a_rank_without_steps_has_a_row_without_figures(tmp_path: Path) -> None:
    record(tmp_path / "run", [Rank(), Rank(), Rank()])
    next((tmp_path / "run").glob("step-1-*.rec")).unlink()
    assert table(printed(tmp_path / "run"))[1] == ["1", *["n/a"] * 5, "no", "steps"]


def test_of_very_many_ranks_the_latest_are_shown(tmp_path: Path) -> None:
    record(tmp_path / "run", [Rank(fetch_ns=(21 if n == 37 else 1) * MS) for n in range(40)], 60)
    shown = printed(tmp_path / "run")
    rows = table(shown)
    assert len(rows) == 16
    assert "37" in [row[0] for row in rows]
    assert "and 24 ranks that are late by less" in shown


def test_a_run_of_one_rank_says_nothing_of_ranks(tmp_path: Path) -> None:
    record(tmp_path / "run", [Rank()])
    shown = printed(tmp_path / "run")
    for words in ("Ranks", " ranks", "rank 0", "Rank 0"):
        assert words not in shown


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
    record(tmp_path / "one", [Rank(), Rank()])
    record(tmp_path / "two", [Rank(), Rank()])
    assert main(["report", str(tmp_path / "one"), str(tmp_path / "two")]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f"rank 0 is both in {tmp_path / 'one'} and in {tmp_path / 'two'}: these are different jobs." in said


def test_the_live_view_says_whose_figures_it_shows(tmp_path: Path) -> None:
    record(tmp_path / "run", [Rank(), Rank()])
    update_run(tmp_path / "run", {"ended": None})
    view = RecentReader(tmp_path / "run").snapshot()
    file = io.StringIO()
    Console(file=file, width=60, color_system=None).print(live.render(view, 60))
    assert "(rank 0 of 2)" in file.getvalue()
    assert all(len(line) <= 60 for line in file.getvalue().splitlines())
    assert "samples/s on rank 0 of 2" in live.line(view)
