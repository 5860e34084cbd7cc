"""Runs as gauges: what a collector reads is what was measured, and no more."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from whyidle.analyse.causes.finding import Finding
from whyidle.analyse.recent.snapshot import DeviceView, HostView, Snapshot
from whyidle.analyse.run.analysis import analyse
from whyidle.commands.main import main
from whyidle.record.run import open_run, update_run
from whyidle.report.export import prometheus

parser = pytest.importorskip("prometheus_client.parser")


def gauges(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    """By name: labels and value of each sample. Every family must be a gauge with a help, and stand together."""
    families = list(parser.text_string_to_metric_families(text))
    names = [family.name for family in families]
    assert len(names) == len(set(names))
    for family in families:
        assert family.type == "gauge"
        assert family.documentation
    return {family.name: [(s.labels, s.value) for s in family.samples] for family in families}


def test_a_run_is_told_in_base_units(starved: Path) -> None:
    analysis = analyse(open_run(starved))
    facts = analysis.facts
    assert facts is not None
    found = gauges(prometheus.of_run(analysis, "starved"))
    parts = {labels["part"]: value for labels, value in found["whyidle_time_share_ratio"]}
    assert parts == pytest.approx(facts.shares)
    assert sum(parts.values()) == pytest.approx(1)
    ((labels, rate),) = found["whyidle_samples_per_second"]
    assert rate == facts.samples_per_s
    assert labels["run"] == "starved"
    assert labels["of"] == "run"
    ((_, median),) = found["whyidle_step_seconds_median"]
    assert median == pytest.approx(analysis.step_ms["p50"] / 1e3)
    ((labels, one),) = found["whyidle_verdict_info"]
    assert (labels["cause"], one) == (analysis.verdict.cause, 1)


def test_what_was_not_measured_is_left_out() -> None:
    view = Snapshot("a run", "", "running", steps=9, shares={"compute": 0.5}, queue_ready=math.nan)
    found = gauges(prometheus.of_snapshot(view, "r"))
    assert set(found) == {"whyidle_steps", "whyidle_time_share_ratio"}
    ((labels, value),) = found["whyidle_time_share_ratio"]
    assert labels == {"run": "r", "of": "recent", "part": "compute"}
    assert value == 0.5


def test_a_moment_of_a_run_tells_what_the_sampler_saw() -> None:
    view = Snapshot(
        "a run",
        "GPU",
        "running",
        steps=9,
        devices=(
            DeviceView(0, "GPU", busy_pct=(10.0, 30.0), memory_used_bytes=3_000),
            DeviceView(1, "GPU", busy_pct=(20.0, 50.0), memory_used_bytes=4_000),
            DeviceView(2, "GPU"),
        ),
        host=HostView(tree_cpus=3.5, steal_pct=2.0),
        verdict=Finding("input.serial", "…", 0.25, 0.9),
    )
    found = {name: samples[0][1] for name, samples in gauges(prometheus.of_snapshot(view, "r")).items()}
    assert found["whyidle_device_utilisation_ratio"] == pytest.approx(0.4)
    assert found["whyidle_device_memory_bytes"] == 4_000
    assert found["whyidle_job_cpus"] == 3.5
    assert found["whyidle_cpu_steal_ratio"] == pytest.approx(0.02)
    assert found["whyidle_verdict_share_ratio"] == pytest.approx(0.25)
    assert "whyidle_device_sm_active_ratio" not in found


def test_labels_are_escaped_and_an_emulated_device_is_labelled(starved: Path) -> None:
    name = 'a "run"\\with\nlines\x1b'
    update_run(starved, {"device": {"kind": "emulated", "title": 'emulated "X"'}})
    ((labels, _),) = gauges(prometheus.of_run(analyse(open_run(starved)), name))["whyidle_samples_per_second"]
    assert labels["run"] == 'a "run"\\with\nlines?'
    assert labels["device"] == 'emulated "X"'
    assert labels["device_kind"] == "emulated"


def test_the_report_command_replaces_the_file(starved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = starved.parent / "x.prom"
    target.write_text("old")
    assert main(["report", str(starved), "--format", "prometheus", "-o", str(target)]) == 0
    assert gauges(target.read_text())["whyidle_steps"]
    assert {path.name for path in starved.parent.iterdir()} == {"starved", "x.prom"}
    assert main(["report", str(starved), "--format", "prometheus"]) == 0
    assert capsys.readouterr().out == target.read_text()
