"""Diagnoses against planted faults, on outcomes made by hand."""

from __future__ import annotations

import math

import pytest

from whyidle_bench.confusion import HitRate, JudgedRun, Named, confusion


def judged(
    case: str,
    planted: str = "",
    named: str = "none",
    *more: tuple[str, float, str],
    true: float | None = None,
    share: float = 0.3,
    foreign: bool = False,
) -> JudgedRun:
    """`planted` and `named` are cause codes separated by blanks; every finding of `named` gets the same share."""
    causes = [name for name in named.split() if name != "none"]
    findings = [Named(name, share, "critical") for name in causes] + [Named(*each) for each in more]
    codes = tuple(planted.split())
    return JudgedRun(
        case,
        codes,
        named.split()[0] if named else None,
        tuple(findings),
        {} if true is None else dict.fromkeys(codes, true),
        steps=80,
        foreign=foreign,
    )


def test_rows_are_what_was_planted_and_columns_what_was_named_first() -> None:
    found = confusion(
        [
            judged("quiet"),
            judged("serial.mild", "input.serial", "input.serial"),
            judged("serial.severe", "input.serial", "input.serial"),
            judged("gc.mild", "host.gc", "host.step_gap host.gc"),
            judged("gc.mild", "host.gc", "host.gc"),
            judged("few", "input.too_few_workers", ""),
        ]
    )
    assert list(found.matrix.items()) == [
        ("input.serial", {"input.serial": 2}),
        ("host.gc", {"host.step_gap": 1, "host.gc": 1}),
        ("input.too_few_workers", {"no verdict": 1}),
        ("none", {"none": 1}),
    ]
    assert found.columns == ["input.serial", "host.gc", "none", "host.step_gap", "no verdict"]
    assert (found.faults.hits, found.faults.of) == (3, 5)


def test_a_compound_needs_both_causes_in_the_first_three_findings_and_has_no_row() -> None:
    three = judged("a", "input.serial host.boundary", "input.serial host.sync host.boundary")
    fourth = judged("b", "input.serial host.boundary", "input.serial host.sync host.gc host.boundary")
    neither_first = judged("c", "input.serial host.boundary", "host.sync host.boundary input.serial")
    found = confusion([three, fourth, neither_first])
    assert found.matrix == {}
    assert (found.compounds.hits, found.compounds.of) == (2, 3)
    assert (found.compounds_first.hits, found.compounds_first.of) == (2, 3)
    assert [case.every.hits for case in found.cases] == [1, 0, 1]


def test_a_control_may_have_a_minor_finding_and_nothing_louder() -> None:
    minor = judged("minor")
    minor = JudgedRun(minor.case, (), "host.sync", (Named("host.sync", 0.06, "minor"),), {})
    loud = judged("loud", "", "none", ("input.handoff", 0.12, "major"))
    found = confusion([judged("quiet"), minor, loud, judged("dumb", "", "")])
    assert (found.controls.hits, found.controls.of) == (2, 4)
    assert {case.case: dict(case.loud) for case in found.cases if case.loud} == {"loud": {"input.handoff": 1}}
    assert found.faults.value is None


def test_errors_of_shares_are_in_points_and_a_cause_not_named_is_not_close() -> None:
    found = confusion(
        [
            judged("a", "host.gc", "host.gc", true=0.28, share=0.30),
            judged("b", "host.gc", "host.gc", true=0.30, share=0.30),
            judged("c", "host.gc", "host.gc", true=0.42, share=0.30),
            judged("d", "host.gc", "host.step_gap", true=0.3),
            # Of this one nobody knows the truth.
            judged("e", "host.gc", "host.gc", share=0.9),
            # A symptom named first does not make the share of the cause wrong.
            judged("f", "host.gc", "host.step_gap host.gc", true=0.3, share=0.3),
        ]
    )
    errors = found.errors
    assert errors.median == pytest.approx(1.0)
    assert errors.worst == pytest.approx(12)
    assert (errors.close.hits, errors.close.of) == (3, 5)
    assert errors.unnamed == 1
    a, *_ = found.cases
    assert [(share.true_pct, share.reported_pct) for share in a.shares] == [(pytest.approx(28), pytest.approx(30))]
    # Where foreign load is rightly named there is no share to compare.
    loaded = judged("a", "input.serial", "input.foreign_load", true=0.3, foreign=True)
    assert (confusion([loaded]).errors.close.of, confusion([]).errors.median) == (0, None)


def test_under_foreign_load_naming_it_is_right_and_without_it_is_not() -> None:
    named = "input.foreign_load"
    assert judged("a", "input.serial", named, foreign=True).named_first
    assert not judged("a", "input.serial", named).named_first
    assert judged("control", "", named, foreign=True).named_first
    assert not judged("control", "", named).named_first
    both = judged("both", "input.serial host.sync", f"{named} host.sync", foreign=True)
    assert both.named_all
    assert not judged("both", "input.serial host.sync", f"{named} host.gc", foreign=True).named_all
    assert confusion([judged("a", "input.serial", named, foreign=True)]).faults.hits == 1


@pytest.mark.parametrize(("hits", "of"), [(0, 10), (10, 10), (29, 30), (1, 2), (190, 200)])
def test_intervals_are_wilsons(hits: int, of: int) -> None:
    """At either end the observed rate lies 1.96 standard errors of *that* rate away."""
    observed = hits / of
    low, high = HitRate(hits, of).interval
    assert 0 <= low <= observed <= high <= 1
    for end in (low, high):
        if end != observed:
            assert abs(observed - end) == pytest.approx(1.96 * math.sqrt(end * (1 - end) / of))
    assert low < high
