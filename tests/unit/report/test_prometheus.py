"""Runs as gauges: what a collector reads is what was measured, and no more."""

from __future__ import annotations

import math

import pytest

from whyidle.analyse.causes.finding import Finding
from whyidle.analyse.recent.snapshot import DeviceView, HostView, Snapshot
from whyidle.report.export.scalars import prometheus_of

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


def test_what_was_not_measured_is_left_out() -> None:
    view = Snapshot("a run", "", "running", steps=9, shares={"compute": 0.5}, queue_ready=math.nan)
    found = gauges(prometheus_of(view, "r"))
    assert set(found) == {"whyidle_steps", "whyidle_time_share_ratio"}
    ((labels, value),) = found["whyidle_time_share_ratio"]
    assert labels == {"run": "r", "of": "recent", "part": "compute"}
    assert value == 0.5


def test_a_moment_of_a_run_tells_what_the_sampler_saw() -> None:
    devices = (
        DeviceView(0, "GPU", busy_pct=(10.0, 30.0), memory_used_bytes=3_000),
        DeviceView(1, "GPU", busy_pct=(20.0, 50.0), memory_used_bytes=4_000),
        DeviceView(2, "GPU"),
    )
    seen = HostView(tree_cpus=3.5, steal_pct=2.0)
    verdict = Finding("input.serial", "…", 0.25, 0.9)
    view = Snapshot("a run", "GPU", "running", steps=9, devices=devices, host=seen, verdict=verdict)
    found = {name: samples[0][1] for name, samples in gauges(prometheus_of(view, "r")).items()}
    assert found["whyidle_device_utilisation_ratio"] == pytest.approx(0.4)
    assert (found["whyidle_device_memory_bytes"], found["whyidle_job_cpus"]) == (4_000, 3.5)
    assert found["whyidle_cpu_steal_ratio"] == pytest.approx(0.02)
    assert found["whyidle_verdict_share_ratio"] == pytest.approx(0.25)
    assert "whyidle_device_sm_active_ratio" not in found


def test_labels_are_escaped_and_an_emulated_device_is_labelled() -> None:
    view = Snapshot("a run", 'emulated "X"', "running", steps=9, devices=(DeviceView(0, "GPU", emulated=True),))
    ((labels, steps),) = gauges(prometheus_of(view, 'a "run"\\with\nlines\x1b'))["whyidle_steps"]
    assert steps == 9
    assert labels["run"] == 'a "run"\\with\nlines?'
    assert labels["device"] == 'emulated "X"'
    assert labels["device_kind"] == "emulated"
