"""Runs as gauges: what a collector reads is what was measured, and no more."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.crafted import analysis_of_run
from support.recent_runs import training
from whyidle.analyse.recent import DeviceView, RecentReader, Snapshot
from whyidle.report.contract import run as contract
from whyidle.report.contract.encode import builtins
from whyidle.report.export.scalars import prometheus_of, told_of
from whyidle.scenarios.planted import Step, train

parser = pytest.importorskip("prometheus_client.parser")


def gauges(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    """By name: labels and value of each sample. Every family is a gauge with a help."""
    families = list(parser.text_string_to_metric_families(text))
    names = [family.name for family in families]
    assert len(names) == len(set(names))
    for family in families:
        assert family.type == "gauge"
        assert family.documentation
    return {family.name: [(s.labels, s.value) for s in family.samples] for family in families}


def test_what_was_not_measured_is_left_out(tmp_path: Path) -> None:
    view = Snapshot("a run", "", "running", steps=9)
    assert set(gauges(prometheus_of(view, None, "r"))) == {"whyidle_steps"}
    train(tmp_path / "run", [[Step()] * 40])
    found = gauges(prometheus_of(view, analysis_of_run(tmp_path / "run"), "r"))
    assert {"whyidle_steps", "whyidle_time_share_ratio"} <= set(found)
    assert not {"whyidle_device_utilisation_ratio", "whyidle_job_cpus", "whyidle_worker_busy_ratio"} & set(found)
    shares = {labels["part"]: value for labels, value in found["whyidle_time_share_ratio"]}
    assert sum(shares.values()) == pytest.approx(1)


def test_a_moment_of_a_job_tells_what_its_report_would(tmp_path: Path) -> None:
    reader = RecentReader(training(tmp_path / "run", 1, seconds=20))
    view, analysis = reader.snapshot(), reader.analysis
    assert analysis is not None
    report = builtins(contract.report(analysis))
    found = {name: samples[0][1] for name, samples in gauges(prometheus_of(view, analysis, "r")).items()}
    assert found["whyidle_device_utilisation_ratio"] == pytest.approx(report["device"]["utilisation_pct"] / 100)
    assert found["whyidle_device_memory_bytes"] == report["device"]["memory_peak_bytes"]
    assert found["whyidle_job_cpus"] == pytest.approx(1.5)
    assert found["whyidle_cpu_steal_ratio"] == pytest.approx(0.01)
    assert found["whyidle_verdict_share_ratio"] == pytest.approx(report["verdict"]["share_pct"] / 100)
    assert "whyidle_device_sm_active_ratio" not in found
    told = told_of(view.steps, analysis)
    assert (told.step, told.values["samples_per_s"]) == (view.steps, report["window"]["samples_per_s"])
    ranks = {each["rank"]: each["window"]["samples_per_s"] for each in report["ranks_detail"]}
    assert {rank: values["samples_per_s"] for rank, values in told.ranks.items()} == ranks


def test_labels_are_escaped_and_an_emulated_device_is_labelled() -> None:
    view = Snapshot("a run", 'emulated "X"', "running", steps=9, devices=(DeviceView(0, "GPU", emulated=True),))
    ((labels, steps),) = gauges(prometheus_of(view, None, 'a "run"\\with\nlines\x1b'))["whyidle_steps"]
    assert steps == 9
    assert labels["run"] == 'a "run"\\with\nlines?'
    assert labels["device"] == 'emulated "X"'
    assert labels["device_kind"] == "emulated"
