"""Whether side B did what side A was advised, and whether that brought what was promised."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.pairs import SOME, noisy
from support.rendered import rendered
from whyidle.analyse.causes.finding import Finding, Next
from whyidle.analyse.diff.difference import Difference, difference
from whyidle.analyse.diff.sides import Side, side_of
from whyidle.analyse.speedup import Speedup
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
    flags: tuple[int | None, int | None] = (None, None),
    steps: int = 200,
) -> Difference:
    a = noisy(folder / "a", SOME(1), workers=workers[0], fetch_ms=15, samples=samples[0], flags=flags[0], steps=steps)
    b = noisy(folder / "b", SOME(2), workers=workers[1], fetch_ms=2, samples=samples[1], flags=flags[1], steps=steps)
    return difference(said(side_of("A", [a]), *of_a), said(side_of("B", [b]), *of_b))


def few(change: Next, share: float = 0.4) -> Finding:
    return finding("input.too_few_workers", share, change)


IN_CODE = finding("input.serial", 0.4, CODE)
BOTH = {"num_workers": 4, "persistent_workers": True}
SERIAL: dict[str, Any] = {"workers": (0, 0)}


@pytest.mark.parametrize(
    ("of_a", "of_b", "how", "followed", "said"),
    [
        ([few(WORKERS)], [], {}, (WORKERS.change, True, True), ": kept."),
        ([few(replace(WORKERS, speedup=BROKEN))], [], {}, (WORKERS.change, True, False), ": not kept."),
        (
            [few(replace(WORKERS, speedup=NEARLY))],
            [],
            {},
            (WORKERS.change, True, None),
            ": not kept by what was measured, whose interval reaches into it.",
        ),
        ([few(replace(WORKERS, settings={"num_workers": 8}))], [], {}, None, ""),
        ([few(replace(WORKERS, settings=BOTH))], [], {}, None, ""),
        ([few(replace(WORKERS, settings={"persistent_workers": True}))], [], {}, None, ""),
        ([few(replace(WORKERS, settings=BOTH))], [], {"flags": (0, 2)}, (WORKERS.change, True, True), ""),
        ([few(WORKERS)], [], {"workers": (4, 4)}, None, ""),
        ([IN_CODE], [], SERIAL, (CODE.change, False, True), "it seems: input.serial is gone"),
        ([IN_CODE], [finding("input.serial", 0.1)], SERIAL, (CODE.change, False, True), ""),
        ([IN_CODE], [finding("input.serial", 0.35)], SERIAL, None, ""),
        ([IN_CODE], [], {}, None, ""),
        ([finding("host.step_gap", 0.4, CODE), few(WORKERS, 0.2)], [], {}, (WORKERS.change, True, True), ""),
        ([few(replace(WORKERS, speedup=None))], [], {}, None, ""),
        ([few(WORKERS)], [], {"samples": (8, 16)}, None, ""),
        ([few(WORKERS)], [], {"steps": 10}, None, ""),
    ],
)
def test_advice_that_was_followed_is_held_against_its_promise(
    tmp_path: Path,
    of_a: list[Finding],
    of_b: list[Finding],
    how: dict[str, Any],
    followed: tuple[str, bool, bool | None] | None,
    said: str,
) -> None:
    found = compared(tmp_path, of_a, of_b, **how)
    shown = " ".join(rendered(diff_document(found)).split())
    assert ("Advice that was followed" in shown) == (followed is not None)
    assert said in shown
    kept = found.promise
    assert (kept and (kept.change.change, kept.is_set, kept.kept)) == followed
    if kept is not None:
        assert kept.measured.low <= TRUTH <= kept.measured.high
        assert kept.cause in {each.cause for each in of_a}
    told = builtins(diff_json.difference(found))["promise"]
    assert (told and (told["advice"]["change"], told["is_set"], told["kept"])) == followed
