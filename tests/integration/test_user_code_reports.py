"""Programs with a fault in their own code, as they were recorded: the report names cause, line and remedy."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from support.recorded_programs import HOME, RECORDING, names, unpacked
from support.runs import report
from whyidle_bench.user_code.cases import BROKEN, FIXED, read
from whyidle_bench.user_code.judge import findings, judged

OF_FORM = {
    form: [name.removesuffix(f"-{form}") for name in names() if name.endswith(f"-{form}")] for form in (BROKEN, FIXED)
}


Told = Callable[[str], dict[str, Any]]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """The report of a kept recording, made once."""
    return cache(lambda name: report(unpacked(name, tmp_path_factory.mktemp(name))))


@pytest.mark.parametrize("name", OF_FORM[BROKEN])
def test_the_report_of_a_broken_form_names_cause_line_and_remedy(name: str, told: Told) -> None:
    program = read(name)
    answer = judged(program, told(f"{name}-{BROKEN}"), None)
    assert answer.cause in program.causes
    assert answer.line_first, answer.line
    assert answer.remedy in program.remedies


@pytest.mark.parametrize("name", OF_FORM[BROKEN])
def test_the_line_is_told_as_it_stands_in_the_program(name: str, told: Told) -> None:
    source = read(name).program(BROKEN).read_text().splitlines()
    lines = [line for each in findings(told(f"{name}-{BROKEN}")) for line in each["where"]]
    own = [line for line in lines if line["file"].endswith(f"/{name}/{BROKEN}.py")]
    assert own
    assert all(source[line["line"] - 1].strip() == line["code"] for line in own)


@pytest.mark.parametrize("name", OF_FORM[FIXED])
def test_no_finding_about_a_fixed_form_has_the_cause(name: str, told: Told) -> None:
    program = read(name)
    fixed = told(f"{name}-{FIXED}")
    assert fixed["verdict"]["cause"] is not None, "there is a verdict"
    assert judged(program, None, fixed).quiet, [each["cause"] for each in findings(fixed)]


@pytest.mark.parametrize("name", names())
def test_a_kept_recording_names_no_machine(name: str, tmp_path: Path) -> None:
    recording = unpacked(name, tmp_path / "program")
    stacks = (recording / "stacks.jsonl").read_text().replace(str(tmp_path / "program"), HOME).splitlines()
    files = {json.loads(line)["file"] for line in stacks}
    assert {file for file in files if not file.startswith((f"{HOME}/", "/usr/lib/python3.11/", "<"))} == set()
    (process,) = (json.loads(path.read_text()) for path in recording.glob("process-*.json"))
    assert (process["host"], process["executable"]) == ("example", "/usr/bin/python3")
    assert json.loads((recording / "run.json").read_text())["host"]["name"] == "example"
    assert sorted(path.name for path in recording.parent.iterdir()) == sorted((RECORDING, name.rpartition("-")[0]))
