"""Whether side B did what side A was advised, and whether that brought what was promised."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from support.pairs import SOME, noisy
from support.rendered import rendered
from whyidle.analyse.causes.finding import Finding, Next
from whyidle.analyse.diff.difference import Difference, difference
from whyidle.analyse.diff.sides import Side, side_of
from whyidle.analyse.speedup import Speedup
from whyidle.record.schema import LoaderFlag
from whyidle.report.contract import diff as diff_json
from whyidle.report.contract.encode import builtins
from whyidle.report.documents.diff import diff_document

TRUTH = 40 / 27
"""How many times as fast B is: a step of 40 ms becomes one of 27."""
KEPT, BROKEN, NEARLY = Speedup(1.5, 1.4, 1.6), Speedup(3.0, 2.5, 3.5), Speedup(1.9, 1.55, 2.2)
WORKERS = Next("num_workers=4", speedup=KEPT, settings={"num_workers": 4}, kind="workers")
CODE = Next("train.py:3: keep what it gives", speedup=KEPT, kind="once")


def finding(cause: str, share: float, *changes: Next) -> Finding:
    return Finding(cause, "", share, 0.9, next=changes)


def said(side: Side, *findings: Finding) -> Side:
    (run,) = side.runs
    return replace(side, runs=(replace(run, analysis=replace(run.analysis, findings=findings)),))


def compared(
    folder: Path,
    of_a: Sequence[Finding],
    of_b: Sequence[Finding] = (),
    workers: tuple[int, int] = (1, 4),
    samples: tuple[int, int] = (8, 8),
    steps: int = 200,
) -> Difference:
    a = noisy(folder / "a", SOME(1), workers=workers[0], fetch_ms=15, samples=samples[0], steps=steps)
    b = noisy(folder / "b", SOME(2), workers=workers[1], fetch_ms=2, samples=samples[1], steps=steps)
    return difference(said(side_of("A", [a]), *of_a), said(side_of("B", [b]), *of_b))


@pytest.mark.parametrize(
    ("promised", "kept", "words"),
    [
        (KEPT, True, ": kept."),
        (BROKEN, False, ": not kept."),
        (NEARLY, None, ": not kept by what was measured, whose interval reaches into it."),
    ],
    ids=["kept", "broken", "nearly"],
)
def test_a_setting_that_was_advised_and_set_is_held_against_its_promise(
    tmp_path: Path, promised: Speedup, kept: bool | None, words: str
) -> None:
    change = replace(WORKERS, speedup=promised)
    found = compared(tmp_path, [finding("input.too_few_workers", 0.4, change)])
    assert found.promise is not None
    assert (found.promise.cause, found.promise.is_set, found.promise.kept) == ("input.too_few_workers", True, kept)
    assert found.promise.measured.low <= TRUTH <= found.promise.measured.high
    shown = rendered(diff_document(found))
    assert "Advice that was followed" in shown
    assert words in " ".join(shown.split())
    told = json.loads(json.dumps(builtins(diff_json.difference(found))))["promise"]
    assert (told["kept"], told["advice"]["change"], told["is_set"]) == (kept, "num_workers=4", True)
    assert told["advice"]["speedup"]["value"] == promised.value


@pytest.mark.parametrize(
    "settings",
    [{"num_workers": 8}, {"num_workers": 4, "persistent_workers": True}, {"persistent_workers": True}],
)
def test_other_settings_than_advised_are_no_advice_followed(tmp_path: Path, settings: dict[str, object]) -> None:
    found = compared(tmp_path, [finding("input.too_few_workers", 0.4, replace(WORKERS, settings=settings))])
    assert found.promise is None
    assert "Advice" not in rendered(diff_document(found))
    assert builtins(diff_json.difference(found))["promise"] is None


def test_what_a_had_already_was_not_followed(tmp_path: Path) -> None:
    found = compared(tmp_path, [finding("input.too_few_workers", 0.4, WORKERS)], workers=(4, 4))
    assert found.promise is None


def test_of_several_settings_all_have_to_be_set(tmp_path: Path) -> None:
    kept = replace(WORKERS, settings={"num_workers": 4, "persistent_workers": True})
    a = noisy(tmp_path / "a", SOME(1), workers=1, fetch_ms=15, flags=0)
    b = noisy(tmp_path / "b", SOME(2), workers=4, fetch_ms=2, flags=LoaderFlag.PERSISTENT_WORKERS)
    sides = said(side_of("A", [a]), finding("input.worker_restart", 0.4, kept)), said(side_of("B", [b]))
    found = difference(*sides)
    assert found.promise is not None
    assert found.promise.change is kept


@pytest.mark.parametrize(("left", "followed"), [(0.0, True), (0.1, True), (0.35, False)])
def test_code_was_changed_as_advised_where_its_finding_is_gone(tmp_path: Path, left: float, followed: bool) -> None:
    of_b = [finding("input.serial", left)] if left else []
    found = compared(tmp_path, [finding("input.serial", 0.4, CODE)], of_b, workers=(0, 0))
    assert (found.promise is not None) == followed
    if found.promise is not None:
        assert not found.promise.is_set
        assert "it seems: input.serial is gone" in " ".join(rendered(diff_document(found)).split())


def test_where_a_setting_was_changed_the_code_is_not_taken_for_the_reason(tmp_path: Path) -> None:
    assert compared(tmp_path, [finding("input.serial", 0.4, CODE)]).promise is None


def test_the_first_advice_that_was_followed_is_told(tmp_path: Path) -> None:
    found = compared(tmp_path, [finding("host.step_gap", 0.4, CODE), finding("input.too_few_workers", 0.2, WORKERS)])
    assert found.promise is not None
    assert found.promise.change is WORKERS


def test_an_advice_that_promised_nothing_cannot_be_kept(tmp_path: Path) -> None:
    found = compared(tmp_path, [finding("input.too_few_workers", 0.4, replace(WORKERS, speedup=None))])
    assert found.promise is None


@pytest.mark.parametrize("how", [{"samples": (8, 16)}, {"steps": 10}], ids=["other batches", "few steps"])
def test_different_trainings_and_too_few_steps_say_nothing_of_promises(
    tmp_path: Path, how: dict[str, tuple[int, int]]
) -> None:
    found = compared(tmp_path, [finding("input.too_few_workers", 0.4, WORKERS)], **how)  # type: ignore[arg-type]
    assert found.promise is None
