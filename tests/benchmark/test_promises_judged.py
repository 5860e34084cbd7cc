"""How promises are held against what came: the judge, the calibration table, and following an advice's outcome."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whyidle.analyse.causes.finding import Next
from whyidle.analyse.statistics import Speedup
from whyidle_bench.confusion import JudgedRun
from whyidle_bench.promises import audit
from whyidle_bench.promises.judge import PLANTED, Followed, Promise, Removed
from whyidle_bench.promises.planted import held
from whyidle_bench.promises.table import tables
from whyidle_bench.user_code import trials
from whyidle_bench.user_code.cases import BROKEN, FIXED, GONE, UserProgram, all_programs

PROMISE = Promise(2.0, 1.6, 2.5)


def followed(measured: float | None, promise: Promise | None = PROMISE, **more: Any) -> Followed:
    given = {"program": "p", "cause": "input.serial", "kind": "workers", "change": "num_workers=2", "how": "settings"}
    return Followed(**{**given, "to_try": False, **more}, promise=promise, measured=measured)


@given(st.lists(st.floats(-1, 1), min_size=200, max_size=200))
def test_the_half_interval_is_that_of_a_normal_error_and_errors_are_symmetric(errors: list[float]) -> None:
    """Of one whose 90 % interval ends at 1.645 standard deviations, half ends at 0.6745 of them."""
    promise = Promise(1.0, math.exp(-1.645), math.exp(1.645))
    # Twice and half as much are as wrong.
    assert promise.error(2.0) == promise.error(0.5) == pytest.approx(1.0)
    for error in errors:
        if abs(abs(error) - 0.6745) > 1e-6:
            assert promise.holds_half(math.exp(error)) == (abs(error) < 0.6745)
            assert promise.holds(math.exp(error))
    assert not promise.holds(math.exp(1.7))


def test_the_table_counts_what_was_judged_and_names_what_was_not() -> None:
    some = [
        followed(2.1, program="good"),
        followed(1.0, program="empty"),
        followed(2.2, to_try=True, program="tried"),
        followed(None, how=audit.NOT_THIS, program="other"),
        followed(1.9, promise=None, program="unsaid"),
    ]
    said = list(tables(some, [Removed("gone", "x = f()", Promise(2.0, 1.9, 2.1), 3.0)], "programs"))
    (whole,) = [line for line in said if line.startswith("| **all**")]
    assert "| 2 | 1 of 2, 50 %" in whole
    (lines,) = [line for line in said if line.startswith("| if a line took no time |")]
    assert "| 1 | 0 of 1" in lines
    assert "- first advice of 5 programs, 2 of them judged" in said
    assert any("gains: 1 of 5; of these 1 gained twofold or more" in line for line in said)
    assert "- 1.3 times or more promised and less than 1.05 gained: 1 of 2" in said
    assert f"- without a measurement: 1 (1 {audit.NOT_THIS})" in said
    (empty,) = [line for line in said if line.startswith("| `empty`") and "settings" in line][:1]
    assert empty.endswith("| 1.00 **no** |")


@pytest.mark.parametrize(
    ("verdict", "share", "brings"), [("input.serial", 0.5, 2.0), ("input.serial", None, None), ("none", 0.5, None)]
)
def test_a_planted_fault_brings_what_it_took(verdict: str, share: float | None, brings: float | None) -> None:
    """By its own share of the time; where that is not known, or another cause was named, it is not judged."""
    advice = Next("num_workers=2", kind="workers", speedup=Speedup(1.9, 1.7, 2.2))
    truth = {} if share is None else {"input.serial": share}
    found = held(JudgedRun("case", ("input.serial",), verdict, (), truth, advice=advice))
    if verdict == "none":
        assert found is None
    else:
        assert found == Followed(
            "case", "input.serial", "workers", "num_workers=2", PLANTED, Promise(1.9, 1.7, 2.2), False, brings
        )


# What was recorded of a program


@pytest.fixture
def program() -> UserProgram:
    return next(each for each in all_programs() if each.half == "promises" and GONE in each.forms)


def recorded(folder: Path, program: UserProgram, report: dict[str, Any], rates: dict[str, list[float]]) -> None:
    """What runs leave behind, with the report that was kept of the broken form."""
    for form, told in rates.items():
        for number, rate in enumerate(told):
            at = trials.place(folder, program, form, number)
            (at / trials.RECORDING).mkdir(parents=True)
            (at / trials.OUTPUT).write_text(f"throughput: {rate} samples/s\n")
    (trials.place(folder, program, BROKEN) / audit.LOOKED).write_text(json.dumps(report))


NO_KIND = "no such kind"


def finding(kind: str, cause: str = "input.serial", **more: Any) -> dict[str, Any]:
    change = {"change": "x", "kind": kind, "speedup": {"value": 2.0, "low": 1.6, "high": 2.5}, **more}
    return {"cause": cause, "next": [change]}


def found_by(folder: Path, program: UserProgram) -> list[tuple[Any, ...]]:
    return [(each.how, each.measured, each.first) for each in audit.followed(program, folder)]


def named(program: UserProgram) -> dict[str, Any]:
    """A verdict that names the program's line, and what is gained without it."""
    verdict = finding(program.remedy)
    line = {"file": str(program.program(BROKEN).resolve()), "line": min(program.numbers), "code": program.lines[0]}
    return verdict | {"where": [{**line, "without": verdict["next"][0]["speedup"]}]}


def test_of_a_program_without_a_form_in_which_its_line_is_gone_that_is_not_judged(tmp_path: Path) -> None:
    without = next(each for each in all_programs() if GONE not in each.forms and each.lines)
    recorded(tmp_path, without, {"verdict": named(without)}, {BROKEN: [10.0], FIXED: [20.0]})
    assert [each.measured for each in audit.followed(without, tmp_path)] == [pytest.approx(2.0)]
    assert audit.removed(without, tmp_path) is None


def test_code_is_followed_by_the_fixed_form_round_by_round(tmp_path: Path, program: UserProgram) -> None:
    rates = {BROKEN: [10.0, 20.0, 10.0], FIXED: [20.0, 42.0, 25.0], GONE: [30.0, 60.0, 33.0]}
    verdict = named(program)
    recorded(tmp_path, program, {"verdict": verdict}, rates)
    (found,) = audit.followed(program, tmp_path)
    assert (found.how, found.measured, found.promise, found.first) == ("code", pytest.approx(2.1), PROMISE, True)
    line_gone = audit.removed(program, tmp_path)
    assert (line_gone.line, line_gone.measured) == (program.lines[0], pytest.approx(3.0))
    assert (found_by(tmp_path / "no", program), audit.removed(program, tmp_path / "no")) == ([], None)


@pytest.mark.parametrize("right", [True, False], ids=["its cause", "another cause"])
def test_further_advice_is_followed_by_its_form(tmp_path: Path, program: UserProgram, right: bool) -> None:
    """It has to be about what is wrong, too: advice of the same kind on something else is another change."""
    further = finding(program.remedy, program.cause if right else "run.startup")
    report = {"verdict": finding(NO_KIND, "device.slow"), "findings": [further]}
    recorded(tmp_path, program, report, {BROKEN: [10.0], FIXED: [20.0]})
    first = (audit.NOT_THIS, None, True)  # another kind than the remedy's: counted and not judged
    assert found_by(tmp_path, program) == [first, *[("code", 2.0, False)] * right]


@pytest.mark.parametrize("first", [True, False], ids=["first advice", "after code"])
def test_a_setting_is_followed_by_its_proof(tmp_path: Path, program: UserProgram, first: bool) -> None:
    """What was promised is what the run promised in which it was tried."""
    cause = "input.serial" if first else "input.too_few_workers"
    setting = finding("workers", cause, settings={"num_workers": 2}, to_try=True)
    code = finding(NO_KIND)
    report = {"verdict": setting} if first else {"verdict": code, "findings": [code, setting]}
    recorded(tmp_path, program, report, {BROKEN: [10.0], FIXED: [20.0]})
    assert audit.advises_settings(report)
    if first:
        assert found_by(tmp_path, program) == [(audit.NOT_TRIED, None, True)]
    proof = tmp_path / program.name / "proof"
    proof.mkdir(parents=True)
    advice = setting["next"][0] | {"to_try": False}
    told = {"cause": "input.serial", "advice": advice, "first": first, "measured": {"value": 1.4}}
    (proof / audit.PROOF).write_text(json.dumps(told))
    before = [] if first else [(audit.NOT_THIS, None, True)]
    assert found_by(tmp_path, program) == [*before, ("settings", 1.4, first)]
    assert [each.to_try for each in audit.followed(program, tmp_path)][-1] is False
