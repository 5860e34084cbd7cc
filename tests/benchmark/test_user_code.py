"""Programs with a slow line of user code: each is whole, its truth can be judged, and reports on it are."""

from __future__ import annotations

import ast
import dataclasses
import difflib
import json
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from whyidle.analyse.causes.diagnosis import CODES
from whyidle.analyse.causes.finding import REMEDIES
from whyidle_bench.__main__ import main
from whyidle_bench.user_code import trials
from whyidle_bench.user_code.cases import BROKEN, FIXED, HALVES, patched, read
from whyidle_bench.user_code.judge import Answer, judged
from whyidle_bench.user_code.table import ProgramResult, as_json, tables

PROGRAMS = Path(__file__).parents[2] / "diagnosis_benchmark" / "user_code" / "programs"
FOLDERS = sorted(path.name for path in PROGRAMS.iterdir() if path.is_dir() and path.name != "__pycache__")
EXTRAS = tomllib.loads((PROGRAMS.parents[2] / "pyproject.toml").read_text())["project"]["optional-dependencies"]
INSTALLED = {re.split(r"[^\w-]", each)[0] for extra in ("dev", "studies", "parquet", "plot") for each in EXTRAS[extra]}
DISTRIBUTIONS = {"PIL": "pillow"}
"""By what they are imported as, packages that are installed by another name."""

TEXTS, LISTS = {"title", "half", "source", "said", "cause", "remedy"}, {"needs", "also", "lines", "also_remedies"}
AUDITED = "promises"
"""The half whose programs hold promises: written for that, of no public thread, measured by the audit alone, and with
gains of any size, none among them."""

LEAST_GAIN = 1.2
"""Samples per second of the fixed form over those of the broken one: below, there is nothing to find."""


@pytest.mark.parametrize("name", FOLDERS)
def test_a_program_is_a_broken_and_a_fixed_form_that_a_user_could_have_written(name: str) -> None:
    files = {path.name for path in (PROGRAMS / name).iterdir()} - {"__pycache__"}
    assert files - {"gone.patch"} == {"broken.py", "fixed.patch", "truth.toml"}
    program = read(name)
    sources = [program.program(form).read_text(encoding="utf-8") for form in program.forms]
    assert len({ast.dump(ast.parse(source)) for source in sources}) == len(files) - 1
    for source in sources[:2]:
        assert 40 <= len(source.splitlines()) <= 130
        assert "whyidle" not in source, "it knows nothing of who watches it"
        assert "throughput: " in source, "its own clock is what a gain is measured by"


@pytest.mark.parametrize("name", FOLDERS)
def test_a_truth_speaks_of_known_causes_remedies_lines_and_packages(name: str) -> None:
    said = tomllib.loads((PROGRAMS / name / "truth.toml").read_text(encoding="utf-8"))
    kinds = dict.fromkeys(TEXTS | {"span"}, str) | dict.fromkeys(LISTS, list) | {"measured": dict, "settings": dict}
    assert {key: type(value) for key, value in said.items()} == {key: kinds[key] for key in said}
    assert said.keys() | {"settings", "span"} == kinds.keys()
    causes, remedies = (said["cause"], *said["also"]), (said["remedy"], *said["also_remedies"])
    assert set(causes) <= set(CODES)
    assert set(remedies) <= REMEDIES.keys()
    assert (len(set(causes)), len(set(remedies))) == (len(causes), len(remedies))
    assert said["half"] in HALVES
    assert said["source"].startswith("https://") or (said["half"], said["source"]) == (AUDITED, "")
    assert {DISTRIBUTIONS.get(package, package) for package in said["needs"]} <= INSTALLED
    program = read(name)
    assert (program.causes, program.remedies) == (causes, remedies)
    lines = [line.strip() for line in (PROGRAMS / name / "broken.py").read_text(encoding="utf-8").splitlines()]
    assert said["lines"] or said.get("settings")
    assert {line: lines.count(line) for line in said["lines"]} == dict.fromkeys(said["lines"], 1)
    assert {lines[number - 1] for number in program.numbers} == set(said["lines"])
    if said["half"] != AUDITED:
        assert said["measured"].keys() == {"broken", "fixed"}
        assert said["measured"]["fixed"] >= LEAST_GAIN * said["measured"]["broken"] > 0


@pytest.mark.parametrize(
    ("old", "new"),
    [("c\n", "d\n"), ("", ""), ("b\nc\n", "b\n"), ("a\nb\nc\nd\ne\nf\ng\nh\n", "a\nB\nc\nd\ne\nf\ng\nx\nh\n")],
)
def test_a_patch_makes_what_it_was_made_from_and_fits_nothing_else(old: str, new: str) -> None:
    old, new = f"first\n{old}last\n", f"first\n{new}last\n"
    lines = difflib.unified_diff(old.splitlines(True), new.splitlines(True), "broken.py", "fixed.py", n=2)
    patch = "".join(lines)
    assert patched(old, patch) == new
    if old != new:
        with pytest.raises(ValueError, match="is not what the program says"):
            patched(f"another\n{old}", patch)
        # As editors do that take blanks from the ends of lines, or a file that was cut.
        with pytest.raises(ValueError, match="cut short"):
            patched(old, patch[: patch.rindex("\n", 0, -1) + 1])


ZIPPED = read("zipped_structures")
(RIGHT_LINE,) = ZIPPED.numbers
UNSEEN = dataclasses.replace(ZIPPED, half="after")
"""The same, as if it had been written when the rules were there."""


def _line(number: int, share: float | None = 50.0, file: str = "zipped_structures/broken.py") -> dict[str, Any]:
    return {"file": f"/home/user/{file}", "line": number, "code": f"line {number}", "share_pct": share}


def _finding(
    cause: str | None, *lines: dict[str, Any], remedy: str = "once", severity: str = "major"
) -> dict[str, Any]:
    next_ = [{"kind": remedy}] if remedy else []
    return {"cause": cause, "severity": severity, "where": list(lines), "next": next_}


def _report(verdict: dict[str, Any], *others: dict[str, Any]) -> dict[str, Any]:
    return {"verdict": verdict, "findings": [verdict, *others]}


RIGHT = _report(_finding(ZIPPED.cause, _line(RIGHT_LINE), _line(1)))
HEALTHY = _report(_finding("none", remedy=""))


@pytest.mark.parametrize(
    ("lines", "first", "among"),
    [
        ([_line(1), _line(RIGHT_LINE)], False, True),
        ([_line(1)], False, False),
        ([], False, False),
        ([_line(RIGHT_LINE, file="another/broken.py")], False, False),
        # A line may be told for what it does, not for the time it takes; what is read first counts.
        ([_line(1, share=None), _line(RIGHT_LINE)], False, True),
        ([_line(RIGHT_LINE, share=None), _line(1)], True, True),
    ],
)
def test_the_first_line_counts_and_others_count_apart(lines: list[dict[str, Any]], first: bool, among: bool) -> None:
    answer = judged(ZIPPED, _report(_finding(ZIPPED.cause, *lines)), None)
    assert (answer.line_first, answer.line_named) == (first, among)


def test_a_fixed_form_is_quiet_only_if_no_finding_above_minor_has_the_cause() -> None:
    loud = _report(_finding("host.gc"), _finding(ZIPPED.cause))
    assert judged(ZIPPED, RIGHT, loud).quiet is False
    second = judged(ZIPPED, loud, None)
    assert (second.cause_first, second.cause_named, second.quiet) == (False, True, None)
    small = _report(_finding("host.gc"), _finding(ZIPPED.cause, severity="minor"))
    assert judged(ZIPPED, RIGHT, small).quiet is True
    assert judged(ZIPPED, RIGHT, _report(_finding("host.gc"))).quiet is True


def test_a_fault_that_cost_nothing_in_its_run_is_not_judged() -> None:
    answer = judged(ZIPPED, _report(_finding("host.gc")), HEALTHY, cost=0.02)
    assert (answer.cause_first, answer.line_first, answer.remedy_first, answer.quiet) == (None, None, None, True)
    lines = list(
        tables([ProgramResult(ZIPPED, [answer], 2.9), ProgramResult(ZIPPED, [judged(ZIPPED, RIGHT, None)], None)])
    )
    assert "- cause first: 1 of 1 (100 %, 95 % interval 21 to 100); in 1 the fault cost nothing" in lines
    assert sum("not judged: the fault cost nothing here" in line for line in lines) == 1
    right = judged(ZIPPED, RIGHT, HEALTHY, cost=0.1)
    assert (right.cause_first, right.line_first, right.remedy_first, right.quiet) == (True, True, True, True)
    assert right.line == f"broken.py:{RIGHT_LINE} line {RIGHT_LINE}"


def test_no_figure_is_of_both_halves() -> None:
    right = judged(ZIPPED, RIGHT, HEALTHY)
    wrong = judged(ZIPPED, _report(_finding("host.gc", remedy="")), HEALTHY)
    results = [ProgramResult(ZIPPED, [right, wrong], 2.9), ProgramResult(UNSEEN, [right], None)]
    told = as_json(results)
    assert told.keys() == {"before", "after"}
    assert told["before"]["rates"]["cause_first"]["of"] == 2
    assert told["after"]["rates"]["cause_first"]["of"] == 1
    assert told["before"]["rates"]["cause_first"] | {"hits": 1, "rate": 0.5} == told["before"]["rates"]["cause_first"]
    assert as_json(results[:1]).keys() == {"before"}
    lines = list(tables(results))
    headings = [line for line in lines if line.startswith("#")]
    assert headings == ["### Programs written before the rules", "### Programs written after the rules"]
    assert [line.partition(" (")[0] for line in lines if line.startswith("- cause first")] == [
        "- cause first: 1 of 2",
        "- cause first: 1 of 1",
    ]
    # Rounds that differ are told in the row of their program.
    assert re.search(r"`zipped_structures`.*\| \*\*1 of 2\*\*.*\| yes[^|]*\| 2\.9x", "\n".join(lines))


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was started: in its place stands what `whyidle run` leaves."""
    started: list[str] = []

    def execute(command: list[str], _folder: Path, output: Path, errors: int) -> int:
        assert errors == subprocess.DEVNULL
        rate = 53.2 if command[-1].endswith("broken.py") else 153.2
        output.write_text(f"throughput: {rate} samples/s\n")
        recording = Path(command[command.index("--out") + 1])
        recording.mkdir()
        started.append("/".join(recording.parts[-3:-1]))
        (recording / "run.json").write_text(json.dumps({"ended": {"status": "ok"}}))
        return 0

    def report(at: Path) -> dict[str, Any] | None:
        whole = {BROKEN: RIGHT, FIXED: HEALTHY}[next(form for form in (BROKEN, FIXED) if form in at.parts)]
        return whole if (at / trials.RECORDING).exists() else None

    monkeypatch.setattr(trials, "execute", execute)
    monkeypatch.setattr(trials, "report", report)
    return started


def test_every_round_counts_and_the_figures_are_written(runs: list[str], tmp_path: Path) -> None:
    kept, figures = tmp_path / "kept", tmp_path / "figures.json"
    main(["user-code", "--cases", "zipped_structures", "--repeats", "3", "--out", str(kept)])
    assert len(runs) == 6
    main(["user-code", "--cases", "zipped_structures", "--from", str(kept), "--json", str(figures)])
    assert len(runs) == 6
    told = json.loads(figures.read_text())
    assert told["left_out"] == {}
    (program,) = told["halves"]["before"]["programs"]
    assert told["halves"]["before"]["rates"]["quiet"]["hits"] == len(program["runs"]) == 3
    assert program["lines"] == [RIGHT_LINE]
    assert program["runs"][0].keys() == {field.name for field in dataclasses.fields(Answer)}


def test_the_gain_is_that_of_runs_alone_if_both_forms_have_some(tmp_path: Path) -> None:
    def say(form: str, number: int, rate: float) -> None:
        at = trials.place(tmp_path, ZIPPED, form) / f"alone-{number}"
        at.mkdir(parents=True)
        (at / trials.ALONE).write_text(f"epoch 1\nthroughput: {rate} samples/s\n")

    written = ZIPPED.measured[FIXED] / ZIPPED.measured[BROKEN]
    say(BROKEN, 0, 10.0)
    assert trials.gain(ZIPPED, tmp_path) == pytest.approx(written)
    for number, rate in enumerate((40.0, 90.0, 50.0)):
        say(FIXED, number, rate)
    assert trials.gain(ZIPPED, tmp_path) == pytest.approx(5.0)
