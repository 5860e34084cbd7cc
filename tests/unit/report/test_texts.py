"""Reports as text: odd ends, few steps, processors, many ranks, how batches are made."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.crafted import facts_of_run
from support.jobs import Rank, record
from support.long_run import make
from support.page_content import parsed
from support.rendered import rendered
from whyidle.analyse.causes.finding import Finding
from whyidle.analyse.cells.comparison import load
from whyidle.analyse.run.analysis import Analysis, analyse
from whyidle.analyse.run.facts import Facts
from whyidle.analyse.run.host_gaps import Evaluation, Outside
from whyidle.analyse.run.loader_stats import SlowSample, Timed, TransformCost
from whyidle.analyse.run.resource_usage import Sampled
from whyidle.analyse.run.stall_breakdown import PARTS
from whyidle.record.comparison import CellRecord, write_comparison
from whyidle.record.run import open_run
from whyidle.record.schema import HEADER_BYTES, STEP
from whyidle.report.contract import run as contract
from whyidle.report.document import Document
from whyidle.report.documents.comparison import comparison_document
from whyidle.report.documents.run import headline, run_document, workers_blocks
from whyidle.report.export import scalars
from whyidle.report.export.table import cells_table, write_csv
from whyidle.report.page import compare_page
from whyidle.report.page.run_page import duration, page
from whyidle.report.render import markdown
from whyidle.report.words.figures import evidence_value
from whyidle.scenarios.planted import MS, Step, train


@pytest.fixture
def starved(starved: Path) -> Analysis:
    return analyse(open_run(starved))


@pytest.mark.parametrize(
    ("ended", "said"),
    [
        ({"status": "stopped", "error": "killed by signal 2", "exit_code": -2}, "stopped by Ctrl-C"),
        ({"status": "stopped", "exit_code": 143}, "stopped by SIGTERM"),
        ({"status": "failed", "exit_code": -9}, "killed by signal 9"),
        ({"status": "failed", "exit_code": 1}, "failed (exit code 1)"),
        ({"status": "stopped", "exit_code": 1}, "stopped by Ctrl-C"),
        ({"status": "oom", "error": "x"}, "out of memory"),
        ({"status": "oom", "exit_code": 1}, "out of memory"),
        (None, "not ended: it still runs, or its recording was killed"),
    ],
)
def test_the_first_line_says_how_a_run_ended_unless_well(
    starved: Analysis, ended: dict[str, object] | None, said: str
) -> None:
    assert headline(starved).endswith("samples/s")
    told = headline(replace(starved, info=starved.info | {"ended": ended}))
    assert told.endswith(f"samples/s, {said} after 100 steps")


@pytest.mark.parametrize(
    ("value", "unit", "said"),
    [
        (0.0072, "ms", "7.2 µs"),
        (0.05, "ms a step", "50 µs a step"),
        (0.4, "ms", "0.4 ms"),
        (0, "ms", "0 ms"),
        (256, "bytes", "256 bytes"),
        (8_400, "bytes", "8.40 kB"),
        (196_608, "bytes", "197 kB"),
        (3.2e9, "bytes", "3.20 GB"),
        (None, "ms", "n/a"),
    ],
)
def test_small_evidence_gets_a_small_unit(value: float | None, unit: str, said: str) -> None:
    assert evidence_value(value, unit) == said


def test_beside_a_verdict_on_validation_workers_are_the_trainings(starved: Analysis) -> None:
    assert starved.facts is not None
    outside = Outside(Evaluation(4, 10**9, 9 * 10**8, 0, None, None, None), 0, 0, 4, 10**9, ())
    facts = replace(starved.facts, loader=replace(starved.facts.loader, workers=2), outside=outside)
    boundary = Finding("host.boundary", "Validation.", 0.3, 0.9)
    for verdict, heading in ((starved.verdict, "Workers"), (boundary, "Workers of the training's loader")):
        lines = rendered(run_document(replace(starved, facts=facts, verdict=verdict))).splitlines()
        assert heading in [line.rstrip() for line in lines]


def test_few_steps_get_no_bar_no_gaps_and_no_rate(tmp_path: Path) -> None:
    train(tmp_path / "few", [[Step(fetch_ns=20 * MS)] * 2])
    shown = rendered(run_document(analyse(open_run(tmp_path / "few"))))
    assert "after the warm-up" in shown
    unsaid = ("██", " gaps", "of the window", "samples/s", " 1 steps", "1 gaps")
    assert [words for words in unsaid if words in shown] == []


def test_of_a_machine_nothing_is_said_where_nothing_was_measured(tmp_path: Path) -> None:
    train(tmp_path / "none", [])
    analysis = replace(analyse(open_run(tmp_path / "none")), machine=Sampled())
    assert "Machine" not in rendered(run_document(analysis))


def test_figures_of_a_job_are_the_jobs_wherever_they_are_told(tmp_path: Path) -> None:
    """All wait for rank 0, whose data come late; the hooks of rank 1 are slow."""
    record(tmp_path / "x-r0", [Rank(fetch_ns=21 * MS), Rank(), Rank(fetch_ns=5 * MS, steps=150)], device="cuda")
    (path,) = (tmp_path / "x-r0").glob("step-1-*.rec")
    steps = np.memmap(path, dtype=STEP.dtype, mode="r+", offset=HEADER_BYTES)
    steps["overhead_ns"] = 90_000
    steps.flush()
    device = {"kind": "cuda", "title": "a GPU"}
    cells = [CellRecord("x", 8, "ok", None, ("x-r0",), {"ranks": 3})]
    write_comparison(tmp_path, {"scenario": None, "device": device, "net": None, "stop": {}}, cells)
    job = analyse(open_run(tmp_path / "x-r0"))
    told, flat = contract.report(job), scalars.of_run(job)
    assert flat[scalars.BUSY] == pytest.approx(told["device"]["busy_pct"])
    assert flat["samples_per_s"] == pytest.approx(told["window"]["samples_per_s"])
    assert job.job is not None
    assert job.facts is not None
    assert flat["overhead_pct"] == pytest.approx(told["quality"]["overhead_pct"])
    assert told["quality"]["overhead_pct"] > 100 * job.facts.overhead_share

    file = io.StringIO(newline="")
    write_csv(cells_table(*load(tmp_path)), file)
    (row,) = csv.DictReader(file.getvalue().splitlines())
    assert {f"{part}_pct": float(row[f"{part}_pct"]) for part in PARTS} == pytest.approx(told["breakdown"])
    assert float(row["wall_s"]) == pytest.approx(told["window"]["wall_s"])
    # Rank 2 ended early: what the others did alone is no part of the window.
    assert told["window"]["steps"] > 150 >= int(row["steps"])

    result, setting = load(tmp_path)
    said, document = f"{told['device']['busy_pct']:.0f} %", comparison_document(result, setting)
    of_table = compare_page.page(result, setting)
    assert [said in form for form in (rendered(document, 120), markdown(document), of_table)] == [True] * 3
    made = parsed(page(job, [open_run(tmp_path / "x-r0")]))
    tiles = {tile.all("dt")[0].words: tile.all("dd")[0].words for tile in made.all("div", "tile")}
    assert tiles["busy"] == f"{told['device']['busy_pct']:.1f} %"
    assert tiles["window"] == duration(told["window"]["wall_s"]) != duration(job.facts.parts.wall_ns / 1e9)


# How batches are made.


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Facts:
    return facts_of_run(make(tmp_path_factory.mktemp("workers") / "run", hours=0.01))


def workers(facts: Facts, input_share: float | None = None, **loader: Any) -> str:
    parts = facts.parts
    if input_share is not None:
        parts = replace(parts, input_ns=round(input_share * parts.wall_ns))
    facts = replace(facts, parts=parts, loader=replace(facts.loader, **loader))
    return rendered(Document(tuple(workers_blocks(facts))), 100)


def percents(text: str) -> list[float]:
    return [float(line.split(" %")[0].split()[-1]) for line in text.splitlines() if " %" in line]


def test_stages_and_transforms_sum_to_all(recorded: Facts) -> None:
    waiting = {"unsplit_pct": 99.0, "read_pct": 0.0, "collate_pct": 1.0, "cpu_pct": 6.0, "run_queue_pct": 4.0}
    text = workers(recorded, **waiting).split("Preparing batches, by what it waits for or does:")[1]
    assert sum(percents(text)) == pytest.approx(100, abs=0.2)
    assert "waiting otherwise  90.0 %" in text
    untold = {
        **dict.fromkeys(("unsplit_pct", "decode_pct", "transform_pct"), nan),
        "read_pct": 30.0,
        "collate_pct": 10.0,
    }
    assert "the rest   60.0 %  not divided further" in workers(recorded, **untold, cpu_pct=nan).split("Preparing")[1]
    costs = tuple(TransformCost(f"T{n}", 10, 0.5) for n in range(7))
    text = workers(recorded, transforms=costs, timed=Timed(10, 10.0, 3.5)).split("Transforms")[1].split("Straggler")[0]
    assert [said for said in ("(10 ms while timed)", "2 others", "all else") if said not in text] == []
    assert sum(percents(text)) == pytest.approx(100, abs=0.2)
    # Figures are not broken across lines.
    blocked = replace(recorded, waits=replace(recorded.waits, blocked_ns=recorded.waits.total_ns // 5))
    assert not [
        line for line in workers(blocked, **waiting).splitlines() if line.lstrip().startswith(("%", "ms", "µs"))
    ]


def test_where_data_costs_little_few_lines_say_it(recorded: Facts) -> None:
    assert len(workers(recorded).splitlines()) > 8
    for text in (workers(recorded, input_share=0.04), workers(recorded, make_ms_per_sample=0.012)):
        assert len(text.splitlines()) <= 6
        assert "reading" not in text
    assert "12 µs" in text
    samples = tuple(SlowSample(ms, number, None) for number, ms in enumerate((40.0, 10.0, 2.0)))
    text = workers(recorded, slowest=samples, make_ms_per_sample=5.0)
    assert "index 0" in text
    assert "index 1" not in text
    assert "Straggler samples" not in workers(recorded, slowest=samples[2:], make_ms_per_sample=1.9)
    assert "Straggler samples" not in workers(recorded, slowest=(SlowSample(0.9, 0, None),), make_ms_per_sample=0.2)
