"""A run checked against another, and checks as JUnit, annotations and Markdown."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console

from support.checks import check, report_of, told
from support.pairs import SOME, crowded, noisy
from whyidle.analyse.diff.check import Asked, LimitCheck, against_runs, lost_of
from whyidle.analyse.diff.difference import Difference
from whyidle.analyse.diff.sides import Side, side_of
from whyidle.analyse.statistics import Estimate
from whyidle.report.documents.checks import check_document
from whyidle.report.export.ci import junit_xml, workflow_commands
from whyidle.report.render import markdown, print_document

pytestmark = pytest.mark.usefixtures("own_folder")


def lost(low: float, mean: float, high: float, *allow: str) -> LimitCheck:
    """7 % is what one run against one shows by chance; the limit is 5."""
    slower, value, faster = (1 - loss / 100 for loss in (high, mean, low))
    asked = Asked({"max-regression": 5.0}, allow=frozenset(allow))
    return lost_of(Estimate(value, slower, faster), 7.0, "runs/main", asked)


@pytest.mark.parametrize(
    ("low", "mean", "high", "status"),
    [
        (60, 70, 80, "failed"),
        (-20, 70, 90, "unclear"),
        (2, 12, 20, "unclear"),
        (6, 12, 18, "failed"),
        (-5, 6.5, 16, "passed"),
        (-8, 3, 13, "passed"),
        (-300, 3, 80, "unclear"),
        (-300, -238, -100, "passed"),
        (-900, -238, 70, "unclear"),
        (-5, 1, 4, "passed"),
    ],
)
def test_what_noise_leaves_open_is_no_pass(low: float, mean: float, high: float, status: str) -> None:
    found = lost(low, mean, high)
    assert (found.status, found.holds) == (status, status == "passed")
    assert ("--allow-noisy" in found.note and "repeat" in found.note) == (status == "unclear")
    allowed = lost(low, mean, high, "noisy")
    assert allowed.holds == (status != "failed")
    assert allowed.status == status


def test_a_loss_that_a_busy_machine_may_make_is_unclear(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base, slower = crowded(tmp_path / "base", SOME(1)), crowded(tmp_path / "slower", SOME(2), compute_ms=40)
    ask = (slower, "--max-regression", "5", "--against", base)
    assert check(*ask, "--junit", "check.xml", "--github") == 1
    said = capsys.readouterr().out
    assert "1 of 3 checks fail: max-regression (unclear)." in said
    assert "::error title=whyidle check max-regression::" in said
    (failure,) = ElementTree.parse("check.xml").iter("failure")
    assert failure.get("type") == "unclear"
    found = told(capsys, *ask)["max-regression"]
    assert (found["status"], found["allowed"]) == ("unclear", False)
    assert check(*ask, "--noise", "2") == 1
    assert "FAIL  Throughput lost" in capsys.readouterr().out


def test_healthy_pairs_rarely_fail_and_regressions_rarely_pass(tmp_path: Path) -> None:
    """Runs of one setting that differ by 3 %, and the same at two thirds of the speed."""
    rng = SOME(5)
    healthy = [side_of("A", [noisy(tmp_path / f"h{n}", rng, steps=60, run_noise=0.03)]) for n in range(40)]
    slow = [side_of("B", [noisy(tmp_path / f"s{n}", rng, steps=60, run_noise=0.03, compute_ms=40)]) for n in range(10)]

    def passes(a: Side, b: Side) -> bool:
        return against_runs(Difference(a, b), "A", Asked({"max-regression": 5.0})).holds

    alarms = [not passes(a, b) for a, b in zip(healthy[::2], healthy[1::2], strict=True)]
    alarms += [not passes(b, a) for a, b in zip(healthy[::2], healthy[1::2], strict=True)]
    assert sum(alarms) <= 0.1 * len(alarms)
    assert not any(passes(a, b) for a, b in zip(healthy, slow, strict=False))


def test_against_a_report_no_more_is_claimed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base, slower = (noisy(tmp_path / name, SOME(n), run_noise=0, compute_ms=n) for name, n in (("a", 20), ("b", 22)))
    saved = report_of(base)
    reach = []
    for against in (base, saved):
        note = told(capsys, slower, "--max-regression", "5", "--against", against)["max-regression"]["note"]
        ends = re.findall(r"([0-9.]+) % (less|more)", str(note))[:2]
        low, high = (float(value) * (1 if way == "less" else -1) for value, way in ends)
        reach.append(high - low)
    assert reach[1] >= 0.8 * reach[0]


def test_nothing_that_a_run_holds_begins_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    """In GitHub's log a line of `::` would be a command."""
    print_document(check_document("run\n::a::", "device\n::b::", hostile_checks()), Console(highlight=False))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + len(hostile_checks())
    assert not any(line.startswith("::") for line in lines)


HOSTILE = 'r<u>&"n\x1b[31m\x00\ud800'


def hostile_checks() -> list[LimitCheck]:
    return [
        LimitCheck("max-stall", HOSTILE, "failed", False, 12.0, 10.0, True, "%", "a, b: 50 %\n::error::forged"),
        LimitCheck("min-au", "AU", "not measured", False, None, 10.0, False, "%", HOSTILE),
        LimitCheck("min-busy", "busy", "not measured", True, None, 10.0, False, "%"),
        LimitCheck("max-copy", "copy", "passed", False, 1.0, 10.0, True, "%"),
    ]


def test_junit_is_well_formed_whatever_a_run_holds() -> None:
    text = junit_xml(HOSTILE, hostile_checks(), {"device": HOSTILE})
    suites = ElementTree.fromstring(text.encode())
    suite = suites.find("testsuite")
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("4", "2", "1")
    cases = [(case.get("name"), *(child.tag for child in case)) for case in suite.findall("testcase")]
    failed = [("max-stall", "failure"), ("min-au", "failure")]
    assert cases == [*failed, ("min-busy", "skipped"), ("max-copy", "system-out")]
    properties = {each.get("name"): each.get("value") for each in suite.iter("property")}
    assert properties["device"] == 'r<u>&"n?[31m??'


def test_annotations_hold_one_command_a_line() -> None:
    lines = list(workflow_commands("run", hostile_checks()))
    assert [line.split(" ", 1)[0] for line in lines] == ["::error", "::error", "::warning"]
    assert "50 %25%0A::error::forged" in lines[0]
    assert all("\n" not in line for line in lines)


def test_markdown_shows_no_markup_of_a_run_makes_no_link_of_a_note_and_shows_all_of_it() -> None:
    text = markdown(check_document("run|<b>", None, hostile_checks()))
    assert not re.search("<u>|<b>", text)
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert all(row.replace("\\|", "").count("|") == 6 for row in rows)
    note = f"@torvalds #12 GH-12 http://a.b www.c.d {'word ' * 100}the way out"
    ended = LimitCheck("ended", "ended", "failed", False, "no", "yes", note=note)
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
    for other, why in ((mine, "is not a JUnit of an earlier check"), (planted / "run.json", "which would be lost")):
        before = other.read_text()
        assert check(planted, "--max-stall", "90", "--junit", other) == 2
        assert why in capsys.readouterr().err
        assert other.read_text() == before
