"""A run in words: Verdict, Why, Next, Evidence, in this order."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ...analyse.causes.diagnosis import LEAST_STEPS
from ...analyse.causes.finding import Evidence, Finding, Next
from ...analyse.ranks import figures as ranks_figures
from ...analyse.ranks.job import Job
from ...analyse.run.activity_windows import Activity
from ...analyse.run.analysis import Analysis
from ...analyse.run.facts import Facts
from ...analyse.run.headroom import MeasuredHeadroom
from ...analyse.run.resource_usage import Sampled
from ...analyse.run.stall_breakdown import PARTS, UNTOLD
from ..render import bars
from ..words.command import command_line
from . import ranks as ranks_text
from . import workers

NOT_MEASURED = "n/a"
LEAST_SHOWN = 0.0005
"""Parts below this share would read 0.0 %."""
FEW_STEPS = 10
"""A bar of fewer steps would look like a finding."""
LEAST_MS = 0.1
"""Less is told in µs."""
LEAST_MB = 1e5
"""Bytes; fewer are told in kB."""
LEAST_IDLE = 0.05
"""Gaps that add up to less are not worth a line."""

_MEANING = {
    "compute": "the device computed",
    "input": "waiting for data",
    "copy": "waiting for copies to the device",
    "sync": "waiting in synchronising calls",
    "host": "waiting for other work of the training loop",
    "boundary": "outside the steps: validation, checkpoints, ends of epochs",
    UNTOLD: "computing, waiting for data, evaluation",
}
_ON_CPU = {"compute": "the training computed", "host": "other work of the training loop"}
_SEVERITY = {"none": "green", "minor": "yellow", "major": "dark_orange", "critical": "bold red"}


def render(analysis: Analysis, console: Console, cost: str | None = None) -> None:
    """Print the report. `cost`: what the run cost, in a line."""
    console.print(Group(*sections(analysis, bars.is_ascii(console), cost)))


def sections(analysis: Analysis, ascii_only: bool, cost: str | None) -> Iterator[RenderableType]:
    """All that the report says, in its order; a heading is a bold line of its own."""
    facts = analysis.facts
    yield Text(headline(analysis), style="bold")
    if stand_in := stand_in_of(analysis):
        yield Text(f"STAND-IN DATA: generated, in place of {stand_in}.", style="bold yellow")
    if cost:
        yield Text(cost)
    yield Text()
    yield from _verdict(analysis.verdict)
    if facts is not None:
        yield from _why(analysis, facts, ascii_only)
    yield from _headroom(analysis.headroom, analysis.job)
    yield from _next(analysis.verdict, rate_now(analysis))
    yield from _evidence(analysis.verdict)
    others = [f for f in analysis.findings if f is not analysis.verdict]
    if others:
        yield _heading("Also")
        for found in others:
            yield _indent(Text(f"{found.cause} ({found.severity}): {found.title}"))
            yield from (
                _indent(_indent(Text(f"{n.change}{prediction(n, rate_now(analysis))}"))) for n in found.next[:1]
            )
        yield Text()
    if analysis.ranks:
        yield _heading("Ranks")
        yield from (_indent(each) for each in ranks_text.table(analysis))
        yield Text()
        if analysis.job is not None:
            yield _heading(f"Rank {analysis.job.lead} by itself")
            yield Text()
    if facts is not None:
        yield from workers.section(facts, _whose_workers(analysis.verdict, facts))
        yield from _device(analysis, facts)
    elif analysis.machine is not None:
        yield from _machine(analysis.machine)
    yield from _quality(analysis)


def _whose_workers(verdict: Finding, facts: Facts) -> str:
    """Beside a verdict on validation, which has a loader of its own."""
    validates = facts.outside is not None and facts.outside.evaluation is not None
    return "Workers of the training's loader" if verdict.cause == "host.boundary" and validates else "Workers"


def _machine(seen: Sampled) -> Iterator[RenderableType]:
    """What is known of a run whose steps were not seen."""
    table = Table.grid(padding=(0, 2))
    for what, value, unit in (
        ("CPUs used by the command", seen.tree_cpus, ""),
        ("CPUs it may use", seen.cpu_budget, ""),
        ("CPU in use on the machine", seen.machine_busy_pct, "%"),
        ("GPU utilisation (NVML)", seen.utilisation_pct, "%"),
        ("SM active", seen.sm_active_pct, "%"),
        ("GPU memory, most", seen.memory_peak_bytes, "bytes"),
    ):
        if value is not None:
            table.add_row(what, evidence_value(value, unit))
    if table.row_count:
        yield _heading("Machine, over the whole recording")
        yield _indent(table)
        yield Text()


def headline(analysis: Analysis) -> str:
    """What ran, on what, how fast, and how it ended unless well."""
    return f"{_what_ran(analysis)}{_planted(analysis)}{_ending(analysis)}"


def stand_in_of(analysis: Analysis) -> str | None:
    """What the generated data of a run stand for; `None` of real ones, and of a run that does not say."""
    return (analysis.info.get("dataset") or {}).get("stand_in")


def _planted(analysis: Analysis) -> str:
    """Of a training with planted faults: which."""
    planted = (analysis.info.get("trial") or {}).get("planted")
    return "" if planted is None else f", planted {' and '.join(planted) or 'nothing'}"


def _ending(analysis: Analysis) -> str:
    ended = analysis.info.get("ended")
    if not isinstance(ended, dict):
        how = "not ended: it still runs, or its recording was killed"
    else:
        status, code = ended.get("status"), ended.get("exit_code")
        if status in (None, "ok"):
            return ""
        if code in _ENDINGS:
            how = _ENDINGS[code]
        elif status in _STATUSES or not isinstance(code, int):
            how = _STATUSES.get(str(status), str(status))
        else:
            how = f"killed by signal {-code}" if code < 0 else f"failed (exit code {code})"
    facts = analysis.facts
    if facts is None:
        return f", {how}"
    return f", {how} after {_steps(facts.window.count + facts.window.warmup_steps)}"


_ENDINGS = {-2: "stopped by Ctrl-C", 130: "stopped by Ctrl-C", -15: "stopped by SIGTERM", 143: "stopped by SIGTERM"}
_STATUSES = {"oom": "out of memory", "stopped": "stopped by Ctrl-C"}


def _what_ran(analysis: Analysis) -> str:
    trial = analysis.info.get("trial") or {}
    device = (analysis.info.get("device") or {}).get("title")
    what = [str(trial[k]) for k in ("scenario", "net", "pipeline") if trial.get(k)]
    if trial.get("case"):
        what[:1] = [" ".join([*what[:1], str(trial["case"])])]
    facts = analysis.facts
    if facts is not None:
        what.append(f"batch {NOT_MEASURED if facts.batch_size is None else facts.batch_size}")
    if not trial:
        what.insert(0, command_line(analysis.info.get("command")))
    name = " · ".join(what)
    if facts is None:
        return name if device is None else f"{name} on {device}"
    ranks = f", {len(analysis.ranks)} ranks" if analysis.ranks else ""
    if facts.window.count < FEW_STEPS:
        return f"{name} on {device or 'unknown device'}{ranks}"
    rate = rate_now(analysis)
    if rate is None:
        fast = f"{1e9 * facts.window.count / facts.parts.wall_ns:.1f} steps/s"
    else:
        fast = f"{rate:.1f} samples/s"
    return f"{name} on {device or 'unknown device'}{ranks}: {fast}"


def rate_now(analysis: Analysis) -> float | None:
    """Samples a second, of all ranks together; `None` where samples are not known."""
    if analysis.facts is None or not analysis.facts.samples_known:
        return None
    return analysis.facts.samples_per_s if analysis.job is None else analysis.job.samples_per_s


def _steps(count: int) -> str:
    return f"{count} step{'' if count == 1 else 's'}"


def evidence_value(value: float | str | None, unit: str) -> str:
    """A figure for people; `n/a` where it was not measured."""
    if value is None:
        return NOT_MEASURED
    if isinstance(value, str):
        return value
    if unit == "bytes":
        return _bytes(value)
    if unit.startswith("ms") and 0 < abs(value) < LEAST_MS:
        return f"{1e3 * value:.2g} µs{unit[2:]}"
    number = f"{value:.0f}" if value == int(value) or abs(value) >= 100 else f"{value:.1f}"
    return f"{number} {unit}".rstrip()


def _bytes(value: float) -> str:
    """In the unit in which it does not read 0.0."""
    if value < 1e3:
        return f"{value:.0f} bytes"
    return f"{value / 1e3:.1f} kB" if value < LEAST_MB else f"{value / 1e6:.1f} MB"


def _verdict(verdict: Finding) -> Iterator[RenderableType]:
    head = Text("Verdict  ", style="bold")
    head.append(verdict.cause or "none possible", style=_SEVERITY[verdict.severity])
    if verdict.severity != "none":
        head.append(f"  ({verdict.severity})")
    yield head
    yield _indent(Text(verdict.title))
    yield Text()


def meaning(part: str, facts: Facts) -> str:
    """What the time of a part was, in words."""
    return (_MEANING | (_ON_CPU if facts.device_kind == "cpu" else {}))[part]


def _why(analysis: Analysis, facts: Facts, ascii_only: bool) -> Iterator[RenderableType]:
    job = analysis.job
    yield _heading(f"Why: where the time went{f', averaged over {len(job.ranks)} ranks' if job else ''}")
    shares = ranks_figures.shares(analysis)
    per_step = facts.parts.wall_ns / facts.window.count / 1e6
    table = Table.grid(padding=(0, 2))
    for part in (*PARTS, UNTOLD):
        if shares.get(part, 0.0) >= LEAST_SHOWN:
            table.add_row(
                Text(f"{bars.sign(part, ascii_only)} {bars.name(part)}", style=bars.colour(part)),
                Text(f"{100 * shares[part]:5.1f} %", justify="right"),
                Text(f"{shares[part] * per_step:8.2f} ms", justify="right"),
                meaning(part, facts),
            )
    if UNTOLD not in shares and "input" not in shares:
        table.add_row(
            Text(f"{bars.sign('input', ascii_only)} input", style=bars.colour("input")),
            Text(NOT_MEASURED, justify="right"),
            "",
            "no fetch was seen: waiting for data is within the rest",
        )
    table.add_row("  a step", "100.0 %", f"{per_step:8.2f} ms", "")
    if facts.window.count >= FEW_STEPS:
        yield _indent(bars.stacked(shares, 60, ascii_only))
    yield _indent(table)
    if job is not None:
        if job.waiting_share is not None and job.waiting_share >= LEAST_SHOWN:
            waiting = f"{100 * job.waiting_share:.1f} % of the time"
            yield _indent(Text(f"Within computing, ranks wait for the last of them {waiting}."))
        yield Text()
        return
    if len(facts.window.steps) < LEAST_STEPS:
        yield Text()
        return
    first = facts.parts.first_fetch_ns / facts.parts.wall_ns
    if first >= LEAST_SHOWN:
        yield _indent(Text(f"Of the input, {100 * first:.1f} % of the time goes to the first batches of epochs."))
    if facts.parts.hidden_wait_ns > 0 and facts.device_kind != "cpu":
        fetch, cost = facts.parts.fetch_ns / 1e6, facts.parts.input_ns / 1e6
        steps = facts.window.count
        yield _indent(
            Text(f"The training waited {fetch / steps:.2f} ms a step for data; it cost the device {cost / steps:.2f}.")
        )
    yield Text()


def _headroom(measured: MeasuredHeadroom | None, job: Job | None) -> Iterator[RenderableType]:
    """Of a run that was asked for it; why there is none, a note says."""
    if measured is None or measured.rate is None:
        return
    rate = measured.rate
    stretches = f"{rate.repeats} stretch{'es' * rate.repeated}"
    speedup = "" if measured.speedup is None else f", {measured.speedup:.2f} times as many as the steps around them"
    yield _heading(f"Headroom: an infinitely fast loader{f', on rank {job.lead}' if job else ''}")
    range_ = f"{rate.low:.0f} to {rate.high:.0f} in {stretches}"
    yield _indent(Text(f"{rate.value:.0f} samples/s ({range_}){speedup}"))
    yield Text()


def _next(verdict: Finding, now: float | None) -> Iterator[RenderableType]:
    if not verdict.next:
        return
    yield _heading("Next")
    for change in verdict.next:
        yield _indent(Text(f"{change.change}{prediction(change, now)}"))
    yield Text()


def prediction(change: Next, now: float | None) -> str:
    """What is expected of a change, to follow its sentence; `now`: samples/s."""
    if now is None or change.high is None:
        return ""
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
    for item in (e for e in verdict.evidence if e.value is not None):
        table.add_row(item.what, evidence_value(item.value, item.unit), expected(item))
    yield _indent(table)
    yield Text()


def expected(item: Evidence) -> str:
    """What the value would be without the cause: a figure, a bound or a setting."""
    return f"(should be {item.expected})" if item.expected else ""


def _device(analysis: Analysis, facts: Facts) -> Iterator[RenderableType]:
    """What different clocks and counters call utilisation, side by side, each with what it is averaged over."""
    yield _heading("Device")
    seen, parts = facts.sampled, facts.parts
    table = Table.grid(padding=(0, 2))
    whole = f", of the {parts.wall_ns / 1e9:.1f} s of the window" if facts.window.count >= FEW_STEPS else ""
    busy = _percent(100 * parts.share("compute") if facts.told_apart else None)
    if facts.device_kind == "cpu":
        table.add_row("busy", busy, f"the processor computing a step{whole} (AU is the same)")
    else:
        stepping = _percent(100 * parts.stepping_share if facts.told_apart else None)
        table.add_row("AU (MLPerf Storage)", stepping, f"from begin to end of a step{whole}")
        table.add_row("busy", busy, f"computing a step, pauses left out{whole}")
        multiprocessors = _windows(seen.sm_active_window_ms, "the multiprocessors")
        table.add_row("SM active", _percent(seen.sm_active_pct), multiprocessors)
        utilisation = _windows(seen.utilisation_window_ms, "any kernel of any program")
        if facts.zero_windows_pct is not None:
            utilisation += f"; {facts.zero_windows_pct:.0f} % of the windows read 0"
        table.add_row("utilisation (NVML)", _percent(seen.utilisation_pct), utilisation)
    yield _indent(table)
    if facts.activity is not None:
        yield _indent(Text(_inside(facts.activity)))
    yield from _gaps(analysis, facts)


def _gaps(analysis: Analysis, facts: Facts) -> Iterator[RenderableType]:
    gaps, parts = analysis.gaps_ms, facts.parts
    where = " in the steps looked at" if facts.window.looked_at < 1 else ""
    idle = 1 - parts.share("compute")
    if gaps and idle >= LEAST_IDLE and len(facts.window.steps) >= LEAST_STEPS:
        yield _indent(
            Text(
                f"{len(parts.gaps_ns)} gap{'' if len(parts.gaps_ns) == 1 else 's'}{where}: half of them below "
                f"{gaps['p50']:.1f} ms, 95 % below {gaps['p95']:.1f} ms, the longest {gaps['max']:.1f} ms; "
                f"{gaps['total'] / 1e3:.2f} s in all"
            )
        )
    yield Text()


def _inside(activity: Activity) -> str:
    """What activity windows saw between the kernels of a step, and of the loader's kernels."""

    def part(ns: int) -> str:
        return f"{100 * ns / activity.spans_ns:.1f} %" if activity.spans_ns else NOT_MEASURED

    text = (
        f"inside {activity.steps} steps recorded kernel by kernel: kernels ran {part(activity.busy_ns)}, launches came "
        f"late {part(activity.idle_launch_ns)}, the host waited for the device {part(activity.idle_sync_ns)}, copies "
        f"{part(activity.idle_copy_ns)}, else {part(activity.idle_other_ns)}"
    )
    if activity.loader_ns:
        alone = 0.0 if activity.loader_alone_ns is None else 100 * activity.loader_alone_ns / activity.window_ns
        text += (
            f"; the loader's kernels ran {100 * activity.loader_ns / activity.window_ns:.1f} % of the time, "
            f"{alone:.1f} % without any of the training's"
        )
    return text


def _percent(value: float | None) -> Text:
    return Text(NOT_MEASURED if value is None else f"{value:.1f} %", justify="right")


def _windows(length_ms: float | None, whose: str) -> str:
    return whose if length_ms is None else f"{whose}, in windows of {length_ms:.0f} ms"


def _quality(analysis: Analysis) -> Iterator[RenderableType]:
    yield _heading("Quality of this measurement")
    facts = analysis.facts
    if facts is not None:
        worst = ", on the rank on which they took most" if analysis.ranks else ""
        per_step_ns = ranks_figures.over_ranks(analysis, lambda f: f.overhead_ns_per_step, max) or 0.0
        yield _indent(
            Text(
                f"{_steps(facts.window.count)} after {facts.window.warmup_steps} of warm-up; whyidle's hooks "
                f"typically took {_microseconds(per_step_ns)} a step by their own clock "
                f"({ranks_figures.overhead(analysis) or 0.0:.3f} % of the time){worst}"
            )
        )
    for note in analysis.notes:
        yield _indent(Text(f"note: {note}"))


def _microseconds(ns: float) -> str:
    return f"{ns / 1e3:.0f} µs" if ns >= 10_000 else f"{ns / 1e3:.1f} µs"


def _heading(title: str) -> Text:
    return Text(title, style="bold")


def _indent(what: RenderableType) -> Padding:
    return Padding(what, (0, 0, 0, 2))
