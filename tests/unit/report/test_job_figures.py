"""A figure of a job of several ranks is the same wherever it is told: of the job, not of the rank that leads it."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.jobs import Rank, record
from support.page_content import parsed
from support.rendered import rendered
from whyidle.analyse.cells.comparison import load
from whyidle.analyse.run.analysis import Analysis, analyse
from whyidle.record.comparison import CellRecord, write_comparison
from whyidle.record.run import open_run
from whyidle.record.schema import HEADER_BYTES, STEP
from whyidle.report.contract import comparison as compare_json
from whyidle.report.contract import run as contract
from whyidle.report.contract.encode import builtins
from whyidle.report.documents.comparison import comparison_document
from whyidle.report.export import scalars
from whyidle.report.export.cells import cells_table
from whyidle.report.export.table_files import write_csv
from whyidle.report.page import compare_page as compare_cells
from whyidle.report.page.run_page import duration, page
from whyidle.report.render.markdown import markdown
from whyidle.scenarios.planted import MS

SETTING: dict[str, Any] = {"scenario": None, "device": {"kind": "cuda", "title": "a GPU"}, "net": None, "stop": {}}
PARTS = ("compute", "input", "copy", "sync", "host", "boundary")


@pytest.fixture
def compared(tmp_path: Path) -> Path:
    """A comparison of one cell: the job waits for rank 0, whose data come late."""
    ranks = [Rank(fetch_ns=21 * MS), Rank(), Rank(fetch_ns=5 * MS, steps=150)]
    record(tmp_path / "x-r0", ranks, device="cuda")
    _slow_hooks(next((tmp_path / "x-r0").glob("step-1-*.rec")))
    write_comparison(tmp_path, SETTING, [CellRecord("x", 8, "ok", None, ("x-r0",), {"ranks": 3})])
    return tmp_path


def _slow_hooks(path: Path) -> None:
    """On one rank."""
    steps = np.memmap(path, dtype=STEP.dtype, mode="r+", offset=HEADER_BYTES)
    steps["overhead_ns"] = 90_000
    steps.flush()


@pytest.fixture
def job(compared: Path) -> Analysis:
    analysis = analyse(open_run(compared / "x-r0"))
    assert analysis.job is not None
    assert analysis.facts is not None
    lead, all_ranks = analysis.facts.shares, analysis.job.shares
    assert abs(lead["compute"] - all_ranks["compute"]) > 0.2, "this test could not tell them apart"
    return analysis


def test_a_comparison_has_the_figures_of_its_runs_report(compared: Path, job: Analysis) -> None:
    told = contract.report(job)
    result, setting = load(compared)
    (cell,) = compare_json.comparison(result, setting)["cells"]
    assert cell["breakdown"] == builtins(told.breakdown)
    assert (cell["busy_pct"], cell["au_pct"]) == (told.device.busy_pct, told.device.au_pct)
    assert cell["busy_pct"] == pytest.approx(told.breakdown.compute_pct)
    assert cell["samples_per_s"]["median"] == told.window.samples_per_s

    file = io.StringIO(newline="")
    write_csv(cells_table(compared), file)
    file.seek(0)
    (row,) = csv.DictReader(file)
    for part in PARTS:
        assert float(row[f"{part}_pct"]) == pytest.approx(getattr(told.breakdown, f"{part}_pct"))
    assert float(row["wall_s"]) == pytest.approx(told.window.wall_s)
    # Rank 2 ended early: what the others did alone is no part of the window.
    assert told.window.steps > 150 >= int(row["steps"])
    assert float(row["wall_s"]) / int(row["steps"]) == pytest.approx(job.step_ms["mean"] / 1e3, rel=0.05)

    (view,) = compare_cells.views(result, setting, {})
    assert view.runs[0].busy_pct == cell["busy_pct"]
    assert 100 * view.shares["input"] == pytest.approx(told.breakdown.input_pct)

    said = f"{cell['busy_pct']:.0f} %"
    assert said in rendered(comparison_document(result, setting), 120)
    assert said in markdown(comparison_document(result, setting))


def test_flat_figures_are_those_of_the_jobs_report(job: Analysis) -> None:
    told, flat = contract.report(job), scalars.of_run(job)
    for name, value in {
        scalars.BUSY: told.device.busy_pct,
        "input_pct": told.breakdown.input_pct,
        "samples_per_s": told.window.samples_per_s,
        "overhead_pct": told.quality.overhead_pct,
    }.items():
        assert flat[name] == pytest.approx(value)
    assert job.facts is not None
    of_all = [part.analysis.facts for part in job.ranks]
    assert flat["overhead_pct"] == pytest.approx(100 * max(facts.overhead_share for facts in of_all if facts))
    assert flat["overhead_pct"] > 100 * job.facts.overhead_share


def test_the_tiles_of_a_page_are_the_jobs(compared: Path, job: Analysis) -> None:
    made = parsed(page(job, [open_run(compared / "x-r0")]))
    tiles = {tile.all("dt")[0].words: tile.all("dd")[0].words for tile in made.all("div", "tile")}
    told = contract.report(job)
    assert tiles["busy"] == f"{told.device.busy_pct:.1f} %"
    assert job.facts is not None
    assert job.job is not None
    assert f"{job.job.steps} steps after the warm-up" in made.words
    assert tiles["window"] == duration(told.window.wall_s) != duration(job.facts.parts.wall_ns / 1e9)
