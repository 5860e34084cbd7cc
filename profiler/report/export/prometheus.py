"""A run in Prometheus' text format, for node_exporter's textfile collector: gauges in base units, shares from 0 to 1.

What was not measured is left out. Figures of an emulated device carry the label `device_kind="emulated"`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ...analyse.causes.finding import Finding
from ...analyse.recent.snapshot import Snapshot
from ...analyse.run.analysis import Analysis
from ...analyse.run.metrics import METRICS
from ...analyse.run.stall_breakdown import PARTS
from ...record.files import plain
from . import scalars

Labels = Mapping[str, str]
RECENT, WHOLE = "recent", "run"
"""What a figure is of: the last seconds of a run that goes on, or all of it."""


@dataclass(frozen=True)
class Gauge:
    name: str
    """Without the leading `whyidle_`."""
    help: str
    scale: float = 1.0
    """From the unit of the flat figure to Prometheus' base unit."""


@dataclass(frozen=True)
class _LabelledRun:
    """What is told of one run."""

    values: Mapping[str, float]
    labels: Labels
    steps: int | None
    verdict: Finding | None


_BASE_UNITS = {"%": 1e-2, "ms": 1e-3}
"""Factors to them."""
GAUGES = {
    "samples_per_s": Gauge("samples_per_second", "Samples trained on a second."),
    "step_ms_p50": Gauge("step_seconds_median", "Length of a step, the median.", 1e-3),
    "step_ms_p95": Gauge("step_seconds_p95", "Length of a step that 95 % of the steps stay below.", 1e-3),
    **{
        metric.logged: Gauge(metric.gauge, metric.meaning, _BASE_UNITS.get(metric.unit, 1.0))
        for metric in METRICS.values()
        if metric.gauge
    },
    "verdict_share_pct": Gauge("verdict_share_ratio", "Share of wall time that the verdict's cause explains.", 1e-2),
}
SHARE = "time_share_ratio"
SHARE_HELP = "Share of wall time by what the device did or waited for; the parts of a run sum to 1."
VERDICT = "verdict_info"
VERDICT_HELP = "Always 1; the labels name the cause and its severity."
STEPS = "steps"
STEPS_HELP = "Steps that were recorded; of a whole run without the warm-up."


def of_run(analysis: Analysis, name: str) -> str:
    """A whole run; `name`: what it is called in the labels."""
    return of_runs([(name, analysis)])


def of_runs(runs: Sequence[tuple[str, Analysis]]) -> str:
    """Whole runs, each with its name."""
    return _text([_whole(name, analysis) for name, analysis in runs])


def of_snapshot(view: Snapshot, name: str) -> str:
    """The last seconds of a run that is being recorded."""
    emulated = any(device.emulated for device in view.devices)
    labels = _labels(name, view.device, "emulated" if emulated else "", RECENT)
    return _text([_LabelledRun(scalars.of_snapshot(view).values, labels, view.steps or None, view.verdict)])


def _labels(name: str, device: str, kind: str, of: str) -> dict[str, str]:
    labels = {"run": name, "device": device, "device_kind": kind, "of": of}
    return {label: value for label, value in labels.items() if value}


def _whole(name: str, analysis: Analysis) -> _LabelledRun:
    device = analysis.info.get("device") or {}
    labels = _labels(name, str(device.get("title") or device.get("name") or ""), str(device.get("kind") or ""), WHOLE)
    facts = analysis.facts
    steps = None if facts is None else facts.window.count
    return _LabelledRun(scalars.of_run(analysis), labels, steps, analysis.verdict)


def _text(runs: Sequence[_LabelledRun]) -> str:
    return "".join(f"{line}\n" for line in _lines(runs))


def _lines(runs: Sequence[_LabelledRun]) -> Iterator[str]:
    """All samples of a metric stand together, as the format wants it."""
    yield from _metric(STEPS, STEPS_HELP, [(run.labels, run.steps) for run in runs if run.steps is not None])
    names = {part: scalars.BUSY if part == "compute" else f"{part}_pct" for part in PARTS}
    shares = [
        ({**run.labels, "part": part}, run.values[name] / 100)
        for run in runs
        for part, name in names.items()
        if name in run.values
    ]
    yield from _metric(SHARE, SHARE_HELP, shares)
    for name, gauge in GAUGES.items():
        found = [(run.labels, run.values[name] * gauge.scale) for run in runs if name in run.values]
        yield from _metric(gauge.name, gauge.help, found)
    verdicts = [(run.labels, run.verdict) for run in runs if run.verdict is not None and run.verdict.cause is not None]
    told = [({**labels, "cause": str(v.cause), "severity": v.severity}, 1) for labels, v in verdicts]
    yield from _metric(VERDICT, VERDICT_HELP, told)


def _metric(name: str, text: str, samples: Sequence[tuple[Labels, float]]) -> Iterator[str]:
    if not samples:
        return
    yield f"# HELP whyidle_{name} {text}"
    yield f"# TYPE whyidle_{name} gauge"
    for labels, value in samples:
        pairs = ",".join(f'{label}="{_escaped(given)}"' for label, given in labels.items())
        yield f"whyidle_{name}{{{pairs}}} {float(value)!r}"


def _escaped(value: str) -> str:
    line: str = plain(value)
    return line.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
