"""A run in words: Verdict, Why, Next, Evidence, in this order."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ..analyse.analysis import Analysis
from ..analyse.facts import Facts
from ..analyse.finding import Evidence, Finding, Next
from ..analyse.partition import PARTS
from . import bars

NOT_MEASURED = "n/a"
LEAST_SHOWN = 0.0005
"""Parts below this share would read 0.0 %."""

_MEANING = {
    "compute": "the device computed",
    "input": "waiting for data",
    "copy": "waiting for copies to the device",
    "sync": "waiting in synchronising calls",
    "host": "waiting for other work of the training loop",
    "boundary": "outside the steps: validation, checkpoints",
}
_SEVERITY = {"none": "green", "minor": "yellow", "major": "dark_orange", "critical": "bold red"}


def render(analysis: Analysis, console: Console) -> None:
    """Print the report."""
    console.print(Group(*_sections(analysis, bars.is_ascii(console))))


def _sections(analysis: Analysis, ascii_only: bool) -> Iterator[RenderableType]:
    facts = analysis.facts
    yield Text(headline(analysis), style="bold")
    yield Text()
    yield from _verdict(analysis.verdict)
    if facts is not None:
        yield from _why(facts, ascii_only)
    yield from _next(analysis.verdict, facts)
    yield from _evidence(analysis.verdict)
    others = [f for f in analysis.findings if f is not analysis.verdict]
    if others:
        yield _heading("Also")
        yield from (_indent(Text(f"{f.cause}: {f.title}")) for f in others)
        yield Text()
    if facts is not None:
        yield from _device(analysis, facts)
    yield from _quality(analysis)


def headline(analysis: Analysis) -> str:
    """What ran, on what, how fast."""
    trial = analysis.info.get("trial") or {}
    device = (analysis.info.get("device") or {}).get("title") or "unknown device"
    what = [str(trial[k]) for k in ("scenario", "net", "pipeline") if trial.get(k)]
    facts = analysis.facts
    if facts is not None:
        what.append(f"batch {facts.batch_size}")
    name = " · ".join(what) or str(analysis.info.get("id", "run"))
    if facts is None:
        return f"{name} on {device}"
    return f"{name} on {device}: {facts.samples_per_s:.1f} samples/s"


def evidence_value(value: float | str | None, unit: str) -> str:
    """A figure for people; `n/a` where it was not measured."""
    if value is None:
        return NOT_MEASURED
    if isinstance(value, str):
        return value
    if unit == "bytes":
        return f"{value / 1e6:.1f} MB"
    number = f"{value:.0f}" if value == int(value) or abs(value) >= 100 else f"{value:.1f}"
    return f"{number} {unit}".rstrip()


def _verdict(verdict: Finding) -> Iterator[RenderableType]:
    head = Text("Verdict  ", style="bold")
    head.append(verdict.cause or "none possible", style=_SEVERITY[verdict.severity])
    if verdict.severity != "none":
        head.append(f"  ({verdict.severity})")
    yield head
    yield _indent(Text(verdict.title))
    yield Text()


def _why(facts: Facts, ascii_only: bool) -> Iterator[RenderableType]:
    yield _heading("Why: where the time went")
    shares = {part: facts.parts.share(part) for part in PARTS}
    per_step = facts.parts.wall_ns / len(facts.window.steps) / 1e6
    table = Table.grid(padding=(0, 2))
    for part in PARTS:
        if shares[part] >= LEAST_SHOWN:
            table.add_row(
                Text(f"{bars.sign(part, ascii_only)} {part}", style=bars.colour(part)),
                Text(f"{100 * shares[part]:5.1f} %", justify="right"),
                Text(f"{shares[part] * per_step:8.2f} ms", justify="right"),
                _MEANING[part],
            )
    table.add_row("  a step", "100.0 %", f"{per_step:8.2f} ms", "")
    yield _indent(Group(bars.stacked(shares, 60, ascii_only), table))
    if facts.parts.hidden_wait_ns > 0 and facts.device_kind != "cpu":
        fetch, cost = facts.parts.fetch_ns / 1e6, facts.parts.input_ns / 1e6
        steps = len(facts.window.steps)
        yield _indent(
            Text(f"The training waited {fetch / steps:.2f} ms a step for data; it cost the device {cost / steps:.2f}.")
        )
    yield Text()


def _next(verdict: Finding, facts: Facts | None) -> Iterator[RenderableType]:
    if not verdict.next:
        return
    yield _heading("Next")
    for change in verdict.next:
        yield _indent(Text(f"{change.change}{_prediction(change, facts)}"))
    yield Text()


def _prediction(change: Next, facts: Facts | None) -> str:
    if facts is None or change.high is None:
        return ""
    now = facts.samples_per_s
    if change.predicted_samples_per_s is None:
        return f": at most {change.high:.0f} samples/s, {change.high / now:.2f} times as many as now"
    return (
        f": about {change.predicted_samples_per_s:.0f} samples/s "
        f"({change.low or now:.0f} to {change.high:.0f}), now {now:.0f}"
    )


def _evidence(verdict: Finding) -> Iterator[RenderableType]:
    if not verdict.evidence:
        return
    yield _heading("Evidence")
    table = Table.grid(padding=(0, 2))
    for item in verdict.evidence:
        table.add_row(item.what, evidence_value(item.value, item.unit), _expected(item))
    yield _indent(table)
    yield Text()


def _expected(item: Evidence) -> str:
    return f"(else {item.expected})" if item.expected else ""


def _device(analysis: Analysis, facts: Facts) -> Iterator[RenderableType]:
    yield _heading("Device")
    seen, gaps = facts.sampled, analysis.gaps_ms
    busy = f"busy {100 * facts.parts.share('compute'):.1f} % of the time"
    if seen.utilisation_pct is None:
        busy += "; utilisation n/a"
    else:
        busy += f"; utilisation {seen.utilisation_pct:.0f} %"
        if seen.utilisation_window_ms is not None:
            busy += f" in windows of {seen.utilisation_window_ms:.0f} ms"
        if facts.zero_windows_pct is not None:
            busy += f", {facts.zero_windows_pct:.0f} % of the windows read 0"
    yield _indent(Text(busy))
    if gaps:
        yield _indent(
            Text(
                f"{len(facts.parts.gaps_ns)} gaps: half of them below {gaps['p50']:.1f} ms, "
                f"95 % below {gaps['p95']:.1f} ms, the longest {gaps['max']:.1f} ms"
            )
        )
    yield Text()


def _quality(analysis: Analysis) -> Iterator[RenderableType]:
    yield _heading("Quality of this measurement")
    facts = analysis.facts
    if facts is not None:
        steps = len(facts.window.steps)
        yield _indent(
            Text(
                f"{steps} steps after {facts.window.warmup_steps} of warm-up; stallscope's hooks typically took "
                f"{facts.overhead_ns / 1e3:.0f} µs a step ({100 * facts.overhead_share:.3f} % of the time)"
            )
        )
    for note in analysis.notes:
        yield _indent(Text(f"note: {note}"))


def _heading(title: str) -> Text:
    return Text(title, style="bold")


def _indent(what: RenderableType) -> Padding:
    return Padding(what, (0, 0, 0, 2))
