"""The pages of planted faults and planted sweeps over batch sizes."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.cells import Planned
from support.page_content import Element, parsed
from whyidle.analyse.cells.batch_size.verdict import batch_verdict
from whyidle.diagnosis_benchmark.confusion import JudgedRun, Named, confusion
from whyidle.diagnosis_benchmark.judged_sweeps import JudgedSweep
from whyidle.diagnosis_benchmark.report import faults_json, faults_page, faults_text, sweeps_page, sweeps_text

HOSTILE = "<script>alert(1)</script>"
SETTING = {"cpu_budget": 2.0, "repeats": 3, "machine": {"cpus": 4, "load": 0.25}, "foreign_load": False}
SWEEPS = {
    "scenario": "batch-sizes",
    "cpu_budget": 2.0,
    "repeats": 1,
    "load": 0.2,
    "device": {"kind": "emulated", "title": "emulated Accelerator"},
}


def run(case: str, planted: tuple[str, ...], *named: tuple[str, float]) -> JudgedRun:
    findings = tuple(Named(cause, share, "critical") for cause, share in named)
    return JudgedRun(case, planted, named[0][0] if named else "none", findings, dict.fromkeys(planted, 0.3), steps=76)


RUNS = [
    run("workers.middle", ("input.too_few_workers",), ("input.too_few_workers", 0.29)),
    run("workers.middle", ("input.too_few_workers",), ("input.too_few_workers", 0.31)),
    run("workers.severe", ("input.too_few_workers",), ("input.cpu_exhausted", 0.29)),
    run("gc.severe", ("host.gc",), ("host.gc", 0.61)),
    run("both", ("input.serial", "host.boundary"), ("host.boundary", 0.2), ("input.serial", 0.28)),
    run("compute-bound", ()),
]


def shown(runs: list[JudgedRun], failed: list[tuple[str, str, str]] | None = None) -> Element:
    return parsed(faults_page.page(confusion(runs), SETTING, failed or []))


def test_the_matrix_holds_the_counts_of_the_json() -> None:
    told = faults_json.matrix(confusion(RUNS))["named_for"]
    head, *rows = shown(RUNS).all("table", "matrix")[0].rows()
    columns = [each.words for each in head[1:]]
    drawn = {
        row[0].words: {name: int(cell.words) for name, cell in zip(columns, row[1:], strict=True) if cell.words}
        for row in rows
    }
    assert drawn == told
    assert drawn["input.too_few_workers"] == {"input.too_few_workers": 2, "input.cpu_exhausted": 1}


def test_what_was_named_as_planted_has_another_colour_and_more_runs_more_of_it() -> None:
    head, *rows = shown(RUNS).all("table", "matrix")[0].rows()
    columns = [each.words for each in head]
    right, wrong = (rows[0][columns.index(name)] for name in ("input.too_few_workers", "input.cpu_exhausted"))
    assert (right.attributes.get("class"), wrong.attributes.get("class")) == ("right", None)
    hot = [int(each.attributes["style"].removeprefix("--hot:").rstrip("%")) for each in (right, wrong)]
    assert hot[0] == pytest.approx(2 * hot[1], abs=1)


def test_the_page_says_the_figures_that_targets_are_set_for_and_what_was_not_judged() -> None:
    page = shown(RUNS, [("quota.mild", "skipped", HOSTILE)])
    for line in faults_text.summary(confusion(RUNS)):
        assert line in page.words
    assert f"quota.mild: skipped: {HOSTILE}" in page.words
    assert len(page.all("script")) == len(shown(RUNS).all("script"))
    assert page.all("h1")[0].words == faults_text.head(SETTING)


def test_where_nothing_was_judged_there_is_no_matrix() -> None:
    page = shown([], [("quota.mild", "failed", "it broke")])
    assert not page.all("table", "matrix")
    assert "Nothing was judged." in page.words


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> JudgedSweep:
    planned = Planned(tmp_path_factory.mktemp("sweep"))
    facts = {size: planned.cell(1, ms, batch_size=size).facts for size, ms in ((8, 16.0), (16, 48.0))}
    truth = {size: {"total": us, "compute": us} for size, us in ((8, 2000.0), (16, 3000.0))}
    return JudgedSweep("compute_growth", "compute_growth", "compute", batch_verdict(facts), truth)


def test_a_sweep_is_told_with_its_truth_and_drawn(sweep: JudgedSweep, tmp_path: Path) -> None:
    undone = JudgedSweep(HOSTILE, "saturated", None, None, {})
    page = parsed(sweeps_page.page([sweep, undone], SWEEPS, [(f"{HOSTILE} 8", "failed: no room")]))
    table = page.all("table", "plain")[0].rows()
    assert [cell.words for cell in table[1]] == [
        "",
        "compute_growth",
        "as planted",
        "compute",
        *sweeps_text.figures(sweep.growth),
    ]
    assert "too few sizes" in [cell.words for cell in table[2]]
    assert f"{HOSTILE} 8: failed: no room" in page.words
    assert "Cause and term as planted: 1 of 1." in page.words
    (drawn,) = page.all("div", "sweep")
    assert drawn.all("code")[0].words == "compute_growth"
    assert len(drawn.all("table", "bars")[0].rows()) == 3
