"""A run under way in Prometheus' text format, for node_exporter's textfile collector: gauges in base units.

What was not measured is left out. Figures of an emulated device carry the label `device_kind="emulated"`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ...analyse.recent.snapshot import Snapshot
from ...analyse.run.metrics import METRICS
from ...analyse.run.stall_breakdown import PARTS
from ...record.files import plain
from . import scalars

Labels = Mapping[str, str]


@dataclass(frozen=True)
class Gauge:
    name: str
    """Without the leading `whyidle_`."""
    help: str
    scale: float = 1.0
    """From the unit of the flat figure to Prometheus' base unit."""


_BASE_UNITS = {"%": 1e-2, "ms": 1e-3}
"""Factors to them."""
GAUGES = {
    "samples_per_s": Gauge("samples_per_second", "Samples trained per second."),
    "step_ms_p50": Gauge("step_seconds_median", "Median length of a step.", 1e-3),
    "step_ms_p95": Gauge("step_seconds_p95", "Length that 95 % of the steps stay below.", 1e-3),
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
VERDICT_HELP = "Always 1; labels name the cause and its severity."
STEPS = "steps"
STEPS_HELP = "Steps recorded."


def of_snapshot(view: Snapshot, name: str) -> str:
    """The last seconds of a run that is being recorded; `name`: what it is called in the labels."""
    emulated = any(device.emulated for device in view.devices)
    labels = {"run": name, "device": view.device, "device_kind": "emulated" if emulated else "", "of": "recent"}
    labels = {label: value for label, value in labels.items() if value}
    return "".join(f"{line}\n" for line in _lines(view, scalars.of_snapshot(view).values, labels))


def _lines(view: Snapshot, values: Mapping[str, float], labels: Labels) -> Iterator[str]:
    """All samples of a metric stand together, as the format wants it."""
    yield from _metric(STEPS, STEPS_HELP, [(labels, view.steps)] if view.steps else [])
    names = {part: scalars.BUSY if part == "compute" else f"{part}_pct" for part in PARTS}
    shares = [({**labels, "part": part}, values[name] / 100) for part, name in names.items() if name in values]
    yield from _metric(SHARE, SHARE_HELP, shares)
    for name, gauge in GAUGES.items():
        yield from _metric(gauge.name, gauge.help, [(labels, values[name] * gauge.scale)] if name in values else [])
    if (verdict := view.verdict) is not None and verdict.cause is not None:
        told = {**labels, "cause": str(verdict.cause), "severity": verdict.severity}
        yield from _metric(VERDICT, VERDICT_HELP, [(told, 1)])


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
