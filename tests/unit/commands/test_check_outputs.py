"""Checks as JUnit, as GitHub's annotations, as Markdown: well-formed whatever a run holds."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console

from support.checks import check
from support.pairs import SOME, noisy
from whyidle.analyse.diff.limits import LimitCheck
from whyidle.report.documents.check import check_document
from whyidle.report.export.ci import junit_xml, workflow_commands
from whyidle.report.render.markdown import markdown
from whyidle.report.render.text import print_document

pytestmark = pytest.mark.usefixtures("own_folder")


def test_causes_keep_their_names_everywhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = noisy(tmp_path / "run", SOME(1), steps=20)
    assert check(run, "--forbid", "input.worker_restart", "--junit", "check.xml", "--github") == 1
    said = capsys.readouterr().out
    assert "min-steps, forbid input.worker_restart." in said
    assert "title=whyidle check forbid input.worker_restart::" in said
    names = [case.get("name") for case in ElementTree.parse("check.xml").iter("testcase")]
    assert names == ["ended", "min-steps", "forbid input.worker_restart"]


def test_nothing_that_a_run_holds_begins_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    """In GitHub's log a line of `::` would be a command."""
    print_document(check_document("run\n::a::", "device\n::b::", hostile_checks()), Console(highlight=False))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + len(hostile_checks())
    assert not any(line.startswith("::") for line in lines)


HOSTILE = 'r<u>&"n\x1b[31m\x00\ud800'


def hostile_checks() -> list[LimitCheck]:
    return [
        LimitCheck("max-stall", HOSTILE, 12.0, 10.0, "%", False, True, "a, b: 50 %\n::error::forged"),
        LimitCheck("min-au", "AU", None, 10.0, "%", None, False, HOSTILE),
        LimitCheck("min-busy", "busy", None, 10.0, "%", None, False, "", True),
        LimitCheck("max-copy", "copy", 1.0, 10.0, "%", True, True),
    ]


def test_junit_is_well_formed_whatever_a_run_holds() -> None:
    text = junit_xml(HOSTILE, hostile_checks(), {"device": HOSTILE})
    suites = ElementTree.fromstring(text.encode())
    suite = suites.find("testsuite")
    assert suite is not None
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("4", "2", "1")
    cases = {case.get("name"): [child.tag for child in case] for case in suite.findall("testcase")}
    assert cases == {
        "max-stall": ["failure"],
        "min-au": ["failure"],
        "min-busy": ["skipped"],
        "max-copy": ["system-out"],
    }
    properties = {each.get("name"): each.get("value") for each in suite.iter("property")}
    assert properties["device"] == 'r<u>&"n?[31m??'


def test_annotations_hold_one_command_a_line() -> None:
    lines = list(workflow_commands("run", hostile_checks()))
    assert [line.split(" ", 1)[0] for line in lines] == ["::error", "::error", "::warning"]
    assert "50 %25%0A::error::forged" in lines[0]
    assert all("\n" not in line for line in lines)


def test_markdown_shows_no_markup_of_a_run() -> None:
    text = markdown(check_document("run|<b>", None, hostile_checks()))
    assert "<u>" not in text
    assert "<b>" not in text
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert all(row.replace("\\|", "").count("|") == 6 for row in rows)


def test_markdown_makes_no_link_of_a_note_and_shows_all_of_it() -> None:
    note = f"@torvalds #12 GH-12 http://a.b www.c.d {'word ' * 100}the way out"
    ended = LimitCheck("ended", "ended", "no", "yes", "", False, False, note)
    text = markdown(check_document("run", None, [ended]))
    assert not re.search(r"@\w|(?<!&)#\d|GH-\d|://|www\.", text)
    assert "the way out" in text


def test_github_gets_annotations_and_a_summary_by_itself(
    planted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    assert check(planted, "--max-stall", "1", "--json") == 1
    assert summary.read_text().startswith("before\n###")
    both = capsys.readouterr()
    assert json.loads(both.out)["passed"] is False
    assert "::error" in both.err


def test_a_junit_file_replaces_an_earlier_one(
    planted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, mine = tmp_path / "check.xml", tmp_path / "notes.xml"
    file.touch()
    assert check(planted, "--max-stall", "1", "--junit", file) == 1
    assert check(planted, "--max-stall", "90", "--junit", file) == 0
    assert not any(case.find("failure") is not None for case in ElementTree.parse(file).iter("testcase"))
    assert check(planted, "--max-stall", "1", "--junit", tmp_path / "no" / "check.xml") == 2
    assert "cannot write" in capsys.readouterr().err
    mine.write_text("<notes/>")
    for other, why in ((mine, "is no JUnit of an earlier check"), (planted / "run.json", "which would be lost")):
        before = other.read_text()
        assert check(planted, "--max-stall", "90", "--junit", other) == 2
        assert why in capsys.readouterr().err
        assert other.read_text() == before
