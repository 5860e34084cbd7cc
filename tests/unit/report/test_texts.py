"""What people read: reports and comparisons, as text."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.jobs import Rank, record
from support.rendered import rendered
from whyidle.analyse.causes.finding import Finding
from whyidle.analyse.cells.comparison import Cell, Comparison, compare
from whyidle.analyse.run.analysis import Analysis, analyse
from whyidle.analyse.run.non_step_time import Evaluation, Outside
from whyidle.analyse.run.resource_usage import Sampled
from whyidle.analyse.run.stall_breakdown import PARTS, UNTOLD
from whyidle.record.notices import SAMPLER_NOTICES, Notices
from whyidle.record.run import open_run
from whyidle.report.contract import comparison as compare_json
from whyidle.report.contract import run as contract
from whyidle.report.contract.encode import builtins
from whyidle.report.documents.comparison import comparison_document
from whyidle.report.documents.run import headline, run_document
from whyidle.report.render import bars
from whyidle.report.words.figures import evidence_value
from whyidle.scenarios.planted import MS, Step, train

SETTING = {
    "scenario": "ssd",
    "net": "ssd300",
    "device": {"kind": "emulated", "title": "emulated Test"},
    "cpu_budget": 2,
    "workers": 2,
    "stop": {"epochs": 1},
    "repeats": 1,
    "augment": True,
    "dataset": {"images": 800},
}


@pytest.fixture
def starved(starved: Path) -> Analysis:
    return analyse(open_run(starved))


@pytest.fixture
def table(tmp_path: Path, starved: Analysis) -> Comparison:
    train(tmp_path / "fast", [[Step(fetch_ns=MS, compute_ns=20 * MS)] * 50], samples=16)
    fast = analyse(open_run(tmp_path / "fast"))
    return compare(
        [
            Cell("naive", 8, "ok", None, ("a",), (starved,)),
            Cell("naive", 192, "oom", "emulated Test has 1.0 GB", (), ()),
            Cell("workers", 16, "ok", None, ("b",), (fast,)),
            Cell("dali-cpu", 8, "skipped", "pip install 'whyidle[dali]'", (), ()),
            Cell("caffe", 8, "failed", "a [broken] file", (), ()),
        ]
    )


def test_a_report_reads_verdict_why_next_evidence_in_this_order(starved: Analysis) -> None:
    shown = rendered(run_document(starved))
    places = [shown.index(h) for h in ("Verdict", "Why: where", "Next", "Evidence", "Device", "Quality of")]
    assert places == sorted(places)
    assert "emulated Test: 400.0" in shown
    assert "50.0 %" in shown
    assert "n/a" in shown  # no sampler ran: CPU figures were not measured
    assert all(len(line) <= 80 for line in shown.splitlines())


def test_a_report_without_steps_says_so_and_shows_no_figures(tmp_path: Path) -> None:
    train(tmp_path / "run", [])
    shown = rendered(run_document(analyse(open_run(tmp_path / "run"))))
    assert "No verdict: no training step was recorded." in shown
    assert "Why" not in shown


@pytest.mark.parametrize(
    ("ended", "said"),
    [
        ({"status": "stopped", "error": "killed by signal 2", "exit_code": -2}, "stopped by Ctrl-C after 100 steps"),
        ({"status": "stopped", "exit_code": 143}, "stopped by SIGTERM after 100 steps"),
        ({"status": "failed", "exit_code": -9}, "killed by signal 9 after 100 steps"),
        ({"status": "failed", "exit_code": 1}, "failed (exit code 1) after 100 steps"),
        ({"status": "stopped", "exit_code": 1}, "stopped by Ctrl-C after 100 steps"),
        ({"status": "oom", "error": "x"}, "out of memory after 100 steps"),
        ({"status": "oom", "exit_code": 1}, "out of memory after 100 steps"),
        (None, "not ended: it still runs, or its recording was killed after 100 steps"),
    ],
)  # fmt: skip
def test_the_first_line_says_how_a_run_ended_unless_well(
    starved: Analysis, ended: dict[str, object] | None, said: str
) -> None:
    assert headline(starved).endswith("samples/s")
    assert headline(replace(starved, info=starved.info | {"ended": ended})).endswith(f"samples/s, {said}")


@pytest.mark.parametrize(
    ("value", "unit", "said"),
    [
        (0.0072, "ms", "7.2 µs"),
        (0.05, "ms a step", "50 µs a step"),
        (0.4, "ms", "0.4 ms"),
        (0, "ms", "0 ms"),
        (256, "bytes", "256 bytes"),
        (8_400, "bytes", "8.4 kB"),
        (196_608, "bytes", "0.2 MB"),
        (3.2e9, "bytes", "3200.0 MB"),
    ],
)
def test_small_evidence_gets_a_small_unit(value: float, unit: str, said: str) -> None:
    assert evidence_value(value, unit) == said


def test_beside_a_verdict_on_validation_the_workers_are_said_to_be_the_trainings(starved: Analysis) -> None:
    assert starved.facts is not None
    evaluation = Evaluation(4, 10**9, 9 * 10**8, 0, None, None, None)
    facts = replace(
        starved.facts,
        loader=replace(starved.facts.loader, workers=2),
        outside=Outside(evaluation, 0, 0, 4, 10**9, ()),
    )
    boundary = Finding("host.boundary", "Validation.", 0.3, 0.9)
    for verdict, heading in ((starved.verdict, "Workers"), (boundary, "Workers of the training's loader")):
        lines = rendered(run_document(replace(starved, facts=facts, verdict=verdict))).splitlines()
        assert heading in [line.rstrip() for line in lines]


def test_a_handful_of_steps_gets_no_bar_no_gaps_and_no_rate(tmp_path: Path) -> None:
    train(tmp_path / "run", [[Step(fetch_ns=20 * MS)] * 2])
    shown = rendered(run_document(analyse(open_run(tmp_path / "run"))))
    assert "step was recorded after the warm-up" in shown or "steps were recorded after the warm-up" in shown
    assert "██" not in shown
    for words in (" gaps", "of the window", "samples/s", " 1 steps", "1 gaps"):
        assert words not in shown


def test_nothing_sampled_gives_no_heading_without_lines(tmp_path: Path) -> None:
    train(tmp_path / "run", [])
    analysis = replace(analyse(open_run(tmp_path / "run")), machine=sampled_nothing())
    assert "Machine" not in rendered(run_document(analysis))


def sampled_nothing() -> Sampled:
    given: dict[str, Any] = dict.fromkeys(Sampled.__dataclass_fields__)
    return Sampled(**given | {"samples": 0, "host_samples": 0, "device_samples": 0})


def test_on_a_processor_no_device_is_spoken_of_and_no_driver_missed(tmp_path: Path) -> None:
    record(tmp_path / "run", [Rank(fetch_ns=20 * MS, host_ns=10 * MS)])
    Notices(tmp_path / "run" / SAMPLER_NOTICES)("No NVIDIA driver here (Library Not Found): no accelerator figures.")
    analysis = analyse(open_run(tmp_path / "run"))
    assert any(f.cause == "host.step_gap" and f.title.startswith("The training spends 2") for f in analysis.findings)
    assert analysis.verdict.title.startswith("The training waits 51 % of the time for data")
    shown = rendered(run_document(analysis)).replace("Device\n", "")
    for words in ("he device", "NVIDIA", "AU (MLPerf"):
        assert words not in shown
    assert contract.report(analysis).verdict.next[0].low is None


def test_reports_need_no_more_than_ascii_where_the_output_has_no_more(starved: Analysis, table: Comparison) -> None:
    for document in (run_document(starved), comparison_document(table, SETTING)):
        shown = rendered(document, encoding="ascii")
        assert "##" in shown
        assert not set(shown) & set("█░▒▓▚▁▂▃▄▅▆▇")


def test_a_comparison_shows_every_cell_whatever_became_of_it(table: Comparison) -> None:
    shown = rendered(comparison_document(table, SETTING))
    rows = {tuple(line.split()[:3]) for line in shown.splitlines()}
    assert ("naive", "8", "400.0") in rows
    assert ("naive", "192", "oom") in rows
    assert ("dali-cpu", "8", "skipped") in rows
    assert ("caffe", "8", "failed") in rows
    assert "naive, batch 192: oom: emulated Test has 1.0 GB" in shown
    assert "caffe, batch 8: failed: a [broken] file" in shown
    assert all(len(line) <= 80 for line in shown.splitlines())
    shown = " ".join(shown.split())
    assert "workers at batch 16: 800.0 samples/s" in shown
    assert "2.0 times as fast as naive" in shown


def test_a_comparison_of_which_nothing_ran_names_no_winner() -> None:
    shown = rendered(comparison_document(compare([Cell("naive", 8, "failed", "no", (), ())]), SETTING))
    assert "No run finished, so there is no winner." in shown


def test_the_json_of_a_run_has_the_contracts_keys_and_sums_to_100(starved: Analysis) -> None:
    report = builtins(contract.report(starved))
    assert (report["format"], report["version"]) == ("whyidle-report", 1)
    assert list(report) == [
        "format",
        "version",
        "run",
        "window",
        "device",
        "breakdown",
        "input",
        "verdict",
        "findings",
        "headroom",
        "quality",
        "startup",
        "trends",
    ]
    assert set(report["window"]) == {
        "steps",
        "warmup_steps",
        "samples",
        "wall_s",
        "samples_per_s",
        "batch_size",
        "step_ms",
    }
    assert set(report["breakdown"]) == {f"{p}_pct" for p in PARTS}
    assert sum(report["breakdown"].values()) == pytest.approx(100)
    window = report["window"]
    assert window["steps"] + window["warmup_steps"] == 100
    assert window["samples_per_s"] == pytest.approx(window["samples"] / window["wall_s"])
    assert report["device"]["utilisation_pct"] is None  # no sampler: not measured, not 0
    assert report["quality"]["cpu_steal_pct"] is None
    assert set(report["verdict"]) == {"cause", "title", "share_pct", "severity", "confidence", "evidence", "next"}


def test_the_json_of_a_comparison_has_the_contracts_keys(table: Comparison) -> None:
    report = json.loads(json.dumps(compare_json.comparison(table, SETTING)))
    assert (report["format"], report["version"]) == ("whyidle-compare", 1)
    assert {"scenario", "device", "cpu_budget", "dataset", "cells", "best", "batch_verdicts"} <= set(report)
    assert set(report["cells"][0]) == {
        "pipeline",
        "batch_size",
        "repeats",
        "status",
        "error",
        "runs",
        "samples_per_s",
        "busy_pct",
        "au_pct",
        "breakdown",
        "verdict",
        "accuracy",
        "cost_usd",
    }
    assert (report["best"]["pipeline"], report["best"]["batch_size"]) == ("workers", 16)
    oom = report["cells"][1]
    assert (oom["status"], oom["samples_per_s"], oom["busy_pct"]) == ("oom", None, None)


def test_a_bar_is_as_wide_as_asked_whatever_the_shares() -> None:
    for shares in (
        {"compute": 1.0},
        {"compute": 1 / 3, "input": 1 / 3, "copy": 1 / 3},
        dict.fromkeys(PARTS, 1 / 6),
        {"boundary": 0.1, UNTOLD: 0.9},
    ):
        for width in (7, 20, 61):
            assert len(bars.stacked(shares, width)) == width


def test_a_spark_tells_zero_from_not_measured() -> None:
    assert bars.spark([0.0, float("nan"), 100.0], 3) == "▁ █"
    assert bars.spark([0.0, float("nan"), 100.0], 3, ascii_only=True) == "_ @"
    assert bars.spark([50.0], 3) == "  ▄"


def test_severity_is_what_fixing_would_gain() -> None:
    shares = {0.04: "none", 0.06: "minor", 0.15: "major", 0.25: "critical"}
    for share, severity in shares.items():
        assert Finding("input.serial", "", share, 1.0).severity == severity


def test_markup_in_names_is_shown_and_not_obeyed(tmp_path: Path, starved: Analysis) -> None:
    cells = compare([Cell("[/x]", 8, "ok", None, ("a",), (starved,)), Cell("y", 8, "failed", "[/z]", (), ())])
    shown = rendered(comparison_document(cells, SETTING))
    assert "[/x]" in shown
    assert "[/z]" in shown


def test_too_short_runs_are_not_sold_as_a_ranking(tmp_path: Path) -> None:
    train(tmp_path / "short", [[Step(fetch_ns=20 * MS)] * 10])
    short = analyse(open_run(tmp_path / "short"))
    cells = compare([Cell("naive", 8, "ok", None, ("a",), (short,))])
    assert "no ranking yet" in rendered(comparison_document(cells, SETTING), width=300)


def test_a_run_on_generated_data_is_told_so_above_its_figures(starved: Analysis) -> None:
    data = {"samples": 50, "unit": "image", "stand_in": "CIFAR-10"}
    generated = replace(starved, info=dict(starved.info) | {"dataset": data})
    shown = rendered(run_document(generated))
    assert shown.index("STAND-IN DATA: generated, in place of CIFAR-10.") < shown.index("Verdict")
    assert contract.report(generated).run.dataset == data
    assert "STAND-IN" not in rendered(run_document(starved))
    assert contract.report(starved).run.dataset is None
