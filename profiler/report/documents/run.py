"""A run in words: the verdict, where the time went, lines of code, what to change, evidence, in this order."""

from __future__ import annotations

from collections.abc import Iterator

from ...analyse.causes.diagnosis import LEAST_STEPS
from ...analyse.causes.finding import Finding
from ...analyse.ranks import figures as ranks_figures
from ...analyse.ranks.job import Job
from ...analyse.run.analysis import Analysis, RankAnalysis
from ...analyse.run.facts import Facts
from ...analyse.run.resource_usage import Sampled
from ...analyse.run.stall_breakdown import PARTS, TOTAL, UNTOLD
from ...analyse.run.startup import (
    COMPILING,
    EVALUATING,
    FIRST_FETCH,
    FIRST_STEP,
    IMPORTS,
    SET_UP,
    SKIPPING,
    STAGES,
)
from ...analyse.run.trends import FALLS, FLAT, GROWS, JUMPS, Trend
from ...analyse.run.worker_deaths import said_of
from ...record.run import ImageDecoding
from ..document import (
    LEFT,
    RIGHT,
    Block,
    Caution,
    Changes,
    Document,
    EvidenceTable,
    Heading,
    LinesOfCode,
    OtherFindings,
    Paragraph,
    Quality,
    SharesOfTime,
    Space,
    TableBlock,
    TableColumn,
    TimeRow,
    Title,
    Verdict,
    emulated_device,
    table,
    under,
)
from ..phrase import Length, line
from ..words.code import command_line, stage_rows
from ..words.figures import LEAST_SHARE, NO_CAUSE, NOT_MEASURED, counted, evidence_value, part_name, percent, share
from . import brief
from .roofline import decoding_words
from .workers import workers_blocks

MOST_ROWS = 16
LEAST_SHOWN = 0.005
"""A part that is smaller on all ranks has no column."""
WAITING = ("input", "copy", "sync", "host", "boundary")


def ranks_blocks(analysis: Analysis) -> Iterator[Paragraph | TableBlock]:
    """One row a rank; of very many the latest, and how many are left out."""
    job = analysis.job
    known = [part.analysis.facts for part in analysis.ranks if part.analysis.facts is not None]
    parts = [p for p in WAITING if any(facts.shares.get(p, 0.0) >= LEAST_SHOWN for facts in known)]
    hosts = len({part.host for part in analysis.ranks}) > 1
    figures = ("samples/s", *(f"{p} %" for p in parts), "compute %", "late ms", "waits ms")
    columns = [
        TableColumn("rank", right=True),
        *([TableColumn("host", wraps=False, most=24)] if hosts else []),
        *(TableColumn(title, right=True, wraps=False) for title in figures),
        TableColumn("by itself", wraps=False),
    ]
    shown = _shown(analysis, job)
    yield table((_row(part, parts, hosts, job) for part in shown), *columns, head_tone="dim")
    if len(shown) < len(analysis.ranks):
        yield Paragraph(f"and {len(analysis.ranks) - len(shown)} ranks that are late by less; --json has them all")
    if job is not None and job.late_ns:
        yield Paragraph(
            "late: how much later than the other ranks it is ready for them, a step; waits: how long it waits for the "
            "last one, which counts as computing here."
        )


def _shown(analysis: Analysis, job: Job | None) -> list[RankAnalysis]:
    if len(analysis.ranks) <= MOST_ROWS:
        return list(analysis.ranks)
    late = job.late_ns if job is not None else {}
    latest = sorted(analysis.ranks, key=lambda part: (-late.get(part.rank, 0.0), part.rank))
    return sorted(latest[:MOST_ROWS], key=lambda part: part.rank)


def _row(part: RankAnalysis, parts: list[str], hosts: bool, job: Job | None) -> list[str]:
    facts = part.analysis.facts
    row = [str(part.rank)] + ([part.host or NOT_MEASURED] if hosts else [])
    if facts is None:
        return [*row, *[NOT_MEASURED] * (len(parts) + 4), "no steps"]
    shares = facts.shares
    late = job.late_ns.get(part.rank) if job is not None else None
    waits = job.waits_ns.get(part.rank) if job is not None else None
    return [
        *row,
        f"{facts.samples_per_s:.1f}",
        *(f"{100 * shares[p]:.1f}" if p in shares else NOT_MEASURED for p in (*parts, "compute")),
        NOT_MEASURED if late is None else f"{late / 1e6:.1f}",
        NOT_MEASURED if waits is None else f"{waits / 1e6:.1f}",
        part.analysis.verdict.cause or NO_CAUSE,
    ]


BAR_SIGNS = 16
"""Of a bar as long as all the time before the first step."""
LEAST_STAGE_NS = 500_000
"""A stage that took less would read 0.00 s."""
_BAR = TableColumn(wraps=False, least=BAR_SIGNS)
_STAGES = {
    IMPORTS: "Python starts and imports modules",
    SET_UP: "everything else before the first batch is asked for",
    EVALUATING: "validation",
    SKIPPING: "batches fetched and not trained on",
    FIRST_FETCH: "workers start and prepare the first batch",
    COMPILING: "torch's compiler",
    FIRST_STEP: "",
}
LEAST_PART = 0.01
"""Share of a step, from which a part that does not rise has a row."""
_TREND_COLUMNS = (
    TableColumn(),
    TableColumn("first fifth", right=True),
    TableColumn("last fifth", right=True),
    TableColumn("in 1000 steps", right=True),
    TableColumn(),
)


def startup_blocks(facts: Facts, bar: bool) -> Iterator[Block]:
    """A row for each stage of the time before the first step. Nothing where its begin is not known.

    `bar`: whether there are enough steps for a picture of it.
    """
    startup = facts.startup
    if startup is None or startup.run_ns <= 0 or startup.total_ns <= 0:
        return
    rows = [
        (
            stage,
            f"{startup.ns(stage) / 1e9:.2f} s",
            share(startup.ns(stage) / startup.run_ns),
            line(Length(round(BAR_SIGNS * startup.ns(stage) / startup.total_ns))) if bar else "",
            _STAGES[stage],
        )
        for stage in STAGES
        if startup.ns(stage) >= LEAST_STAGE_NS
    ]
    yield Heading("Until the end of the first step")
    yield table(rows, LEFT, RIGHT, RIGHT, _BAR, LEFT, indent=1)
    since = "its process began" if startup.whole else "its recording began (what came before was not measured)"
    yield Paragraph(
        f"{startup.total_ns / 1e9:.2f} s of the run's {startup.run_ns / 1e9:.2f} s, since {since}; outside the window",
        1,
    )
    yield Space()


def trend_blocks(facts: Facts) -> Iterator[Block]:
    """A row a part, and one of the step as a whole. Nothing of a run with too few steps for a trend."""
    if not facts.trends:
        return
    least = LEAST_PART * max(facts.trends[-1].first_ms, facts.trends[-1].last_ms)
    shown = [each for each in facts.trends if each.since is not None or max(each.first_ms, each.last_ms) >= least]
    yield Heading("Over the run, ms of a step")
    yield table(map(_trend_row, shown), *_TREND_COLUMNS, indent=1)
    yield Space()


def _trend_row(trend: Trend) -> tuple[str, str, str, str, str]:
    name = "a step" if trend.part == TOTAL else part_name(trend.part)
    if trend.part == "boundary":
        name += ", a stretch"
    slope = trend.slope
    change = f"{slope.value:+.2f} ({slope.low:+.2f} to {slope.high:+.2f})"
    return name, f"{trend.first_ms:.2f}", f"{trend.last_ms:.2f}", change, _trend_said(trend)


def _trend_said(trend: Trend) -> str:
    """What it does, in words."""
    if trend.shape == FLAT:
        return "no trend"
    if trend.shape == FALLS:
        return "falls"
    at = f"at step {trend.since}" if trend.shape == JUMPS else f"from step {trend.since} on"
    if trend.shape in (GROWS, JUMPS):
        return f"{trend.shape} {at}"
    return f"rises {at}, {trend.why}"


FEW_RANKS, FEW_STEPS = 8, 10
"""The short version has no table of more ranks; a bar of fewer steps would look like a finding."""
LEAST_FOREIGN, LEAST_IDLE = 0.3, 0.05
"""CPUs of other programs, and a share of gaps, that are worth a line."""

_MEANING = {
    "compute": "the device computes",
    "input": "the device waits for data",
    "copy": "the device waits for host-to-device copies",
    "sync": "the device waits while the program waits for a result",
    "host": "the device waits for other work of the training loop",
    "boundary": "outside the steps: validation, checkpoints, ends of epochs",
    UNTOLD: "computing, waiting for data, evaluation",
}
_ON_CPU = {
    "compute": "the training computes",
    "input": "the training waits for data",
    "host": "other work of the training loop",
}


def run_document(analysis: Analysis, cost: str | None = None) -> Document:
    """All of it. `cost`: what the run cost, in a line."""
    return Document(tuple(_blocks(analysis, cost)), tuple(_brief(analysis, cost)))


def _head(analysis: Analysis, cost: str | None) -> Iterator[Block]:
    yield Title(headline(analysis))
    if stand_in := stand_in_of(analysis):
        yield Caution("Stand-in data", f"generated, in place of {stand_in}.")
    if (analysis.info.get("device") or {}).get("kind") == "emulated":
        yield emulated_device("its times are computed from a profile, not measured on such a device.")
    if analysis.deaths:
        yield Caution("A worker died", said_of(analysis.deaths))
    if cost:
        yield Paragraph(cost)
    yield Space()
    yield Verdict(analysis.verdict)


def _brief(analysis: Analysis, cost: str | None) -> Iterator[Block]:
    """One screen."""
    yield from _head(analysis, cost)
    facts, shares = analysis.facts, ranks_figures.shares(analysis)
    if facts is not None and facts.window.count >= FEW_STEPS:
        yield from brief.time_bar(shares, facts.parts.wall_ns / facts.window.count / 1e6)
        devices, idle = max(1, len(analysis.ranks)), 1 - shares.get("compute", 1.0)
        if facts.device_kind == "cuda" and idle >= LEAST_IDLE:
            whose = "The GPU is" if devices == 1 else f"The {devices} GPUs are"
            yield Paragraph(f"{whose} idle {share(idle, 0)} of the time: {24 * idle * devices:.1f} GPU-hours a day.", 1)
    yield Space()
    yield from brief.actions(analysis.verdict, analysis.findings, rate_now(analysis))
    if 1 < len(analysis.ranks) <= FEW_RANKS and analysis.verdict.cause != "none":
        yield from ranks_blocks(analysis)
        yield Space()
    quality = _quality(analysis)
    yield from brief.quality(quality.brief, quality.notes, show=analysis.verdict.cause is None)


def _blocks(analysis: Analysis, cost: str | None) -> Iterator[Block]:
    facts = analysis.facts
    yield from _head(analysis, cost)
    yield Space()
    if facts is not None:
        yield from _why(analysis, facts)
    now = rate_now(analysis)
    if analysis.verdict.where:
        yield LinesOfCode(analysis.verdict.where)
        yield Space()
    if analysis.verdict.next:
        yield Changes(analysis.verdict.next, now)
        yield Space()
    if analysis.verdict.stages is not None:
        stages = analysis.verdict.stages
        yield Heading(f"Stages, of {stages.time}")
        yield table(stage_rows(stages), LEFT, RIGHT, LEFT, LEFT, indent=1)
        yield Space()
    if (decoding := ImageDecoding.of(analysis.info)) is not None:
        timed = None if facts is None or facts.loader is None else facts.loader.timed
        yield Paragraph(decoding_words(decoding, now, analysis.verdict.stages, timed))
        yield Space()
    if analysis.verdict.evidence:
        yield EvidenceTable(analysis.verdict.evidence)
        yield Space()
    if others := tuple(found for found in analysis.findings if found is not analysis.verdict):
        yield OtherFindings(others, now)
        yield Space()
    if analysis.ranks:
        yield Heading("Ranks")
        yield from under(ranks_blocks(analysis))
        yield Space()
        if analysis.job is not None:
            yield Heading(f"Rank {analysis.job.lead} by itself")
            yield Space()
    if facts is not None:
        yield from workers_blocks(facts, _whose_workers(analysis.verdict, facts))
        yield from _device(analysis, facts)
        yield from startup_blocks(facts, bar=facts.window.count >= FEW_STEPS)
        yield from trend_blocks(facts)
    elif analysis.machine is not None:
        yield from _machine(analysis.machine)
    yield _quality(analysis)


def _whose_workers(verdict: Finding, facts: Facts) -> str:
    """Beside a verdict on validation, which has a loader of its own."""
    validates = facts.outside is not None and facts.outside.evaluation is not None
    return "Workers of the training's loader" if verdict.cause == "host.boundary" and validates else "Workers"


def _machine(seen: Sampled) -> Iterator[Block]:
    """What is known of a run whose steps were not seen."""
    measured = (
        ("CPUs used by the command", seen.tree_cpus, ""),
        ("CPUs it may use", seen.cpu_budget, ""),
        ("CPU in use on the machine", seen.machine_busy_pct, "%"),
        ("GPU utilisation (NVML)", seen.utilisation_pct, "%"),
        ("SM active", seen.sm_active_pct, "%"),
        ("GPU memory, most", seen.memory_peak_bytes, "bytes"),
    )
    rows = [(what, evidence_value(value, unit)) for what, value, unit in measured if value is not None]
    if rows:
        yield Heading("Machine, over the whole recording")
        yield table(rows, indent=1)
        yield Space()


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
    return f", {how} after {counted(facts.window.count + facts.window.warmup_steps, 'step')}"


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


def meaning(part: str, facts: Facts) -> str:
    """What the time of a part was, in words."""
    return (_MEANING | (_ON_CPU if facts.device_kind == "cpu" else {}))[part]


def _why(analysis: Analysis, facts: Facts) -> Iterator[Block]:
    job = analysis.job
    shares = ranks_figures.shares(analysis)
    per_step = facts.parts.wall_ns / facts.window.count / 1e6
    rows = [
        TimeRow(part, shares[part], shares[part] * per_step, meaning(part, facts))
        for part in (*PARTS, UNTOLD)
        if shares.get(part, 0.0) >= LEAST_SHARE
    ]
    if UNTOLD not in shares and "input" not in shares:
        rows.append(TimeRow("input", None, None, "no fetch was recorded: waits for data are within the rest"))
    yield SharesOfTime(
        f"Where the time went{f', averaged over {len(job.ranks)} ranks' if job else ''}",
        tuple(rows),
        per_step,
        bar=facts.window.count >= FEW_STEPS,
        remarks=tuple(_of_job(job) if job is not None else _of_input(facts)),
    )
    yield Space()


def _of_job(job: Job) -> Iterator[str]:
    if job.waiting_share is not None and job.waiting_share >= LEAST_SHARE:
        yield f"Within computing, ranks wait for the last of them {share(job.waiting_share)} of the time."


def _of_input(facts: Facts) -> Iterator[str]:
    if facts.own_loop is not None:
        told = ", ".join(
            f"{what} {share(part.value, 0)} ({100 * part.low:.0f}–{100 * part.high:.0f})"
            for what, part in facts.own_loop.shares.items()
        )
        yield f"{counted(facts.own_loop.looks, 'stack sample')} divide it: {told}."
    if len(facts.window.steps) < LEAST_STEPS:
        return
    first = facts.parts.first_fetch_ns / facts.parts.wall_ns
    if first >= LEAST_SHARE:
        yield f"First batches of epochs: {share(first)} of the time."
    if facts.parts.hidden_wait_ns > 0 and facts.device_kind != "cpu":
        fetch, cost = facts.parts.fetch_ns / 1e6, facts.parts.input_ns / 1e6
        steps = facts.window.count
        yield f"Fetching takes {fetch / steps:.2f} ms a step, of which the device stands still {cost / steps:.2f} ms."


def _device(analysis: Analysis, facts: Facts) -> Iterator[Block]:
    """What different clocks and counters call utilisation, side by side, each with what it is averaged over."""
    yield Heading("Device")
    seen, parts = facts.sampled, facts.parts
    whole = f", of the {parts.wall_ns / 1e9:.1f} s of the window" if facts.window.count >= FEW_STEPS else ""
    busy = share(parts.share("compute") if facts.told_apart else None)
    if facts.device_kind == "cpu":
        rows = [("busy", busy, f"the processor computes a step{whole} (AU is the same)")]
    else:
        utilisation = _windows(seen.utilisation_window_ms, "any kernel of any program")
        if facts.zero_windows_pct is not None:
            utilisation += f"; {facts.zero_windows_pct:.0f} % of the windows read 0"
        stepping = share(parts.stepping_share if facts.told_apart else None)
        rows = [
            ("AU (MLPerf Storage)", stepping, f"from begin to end of a step{whole}"),
            ("busy", busy, f"computing a step, pauses left out{whole}"),
            ("SM active", percent(seen.sm_active_pct), _windows(seen.sm_active_window_ms, "the multiprocessors")),
            ("utilisation (NVML)", percent(seen.utilisation_pct), utilisation),
        ]
    yield table(rows, LEFT, RIGHT, LEFT, indent=1)
    yield from _gaps(analysis, facts)


def _gaps(analysis: Analysis, facts: Facts) -> Iterator[Block]:
    gaps, parts = analysis.gaps_ms, facts.parts
    where = " in the steps looked at" if facts.window.looked_at < 1 else ""
    idle = 1 - parts.share("compute")
    if gaps and idle >= LEAST_IDLE and len(facts.window.steps) >= LEAST_STEPS:
        yield Paragraph(
            f"idle {counted(len(parts.gaps_ns), 'time')}{where}: half of them below {gaps['p50']:.1f} ms, 95 % below "
            f"{gaps['p95']:.1f} ms, the longest {gaps['max']:.1f} ms; {gaps['total'] / 1e3:.2f} s in all",
            1,
        )
    yield Space()


def _windows(length_ms: float | None, whose: str) -> str:
    return whose if length_ms is None else f"{whose}, in windows of {length_ms:.0f} ms"


def _quality(analysis: Analysis) -> Quality:
    facts, said = analysis.facts, None
    short = []
    if facts is not None:
        worst = ", on the rank on which they took most" if analysis.ranks else ""
        per_step_ns = ranks_figures.over_ranks(analysis, lambda f: f.overhead_ns_per_step, max) or 0.0
        overhead = ranks_figures.figure(analysis, "overhead_pct") or 0.0
        steal = ranks_figures.figure(analysis, "cpu_steal_pct")
        steps = f"{counted(facts.window.count, 'step')} after {facts.window.warmup_steps} of warm-up"
        said = (
            f"{steps}; whyidle's hooks took {_microseconds(per_step_ns)} a step (median, by their own clock; "
            f"{overhead:.3f} % of the time){worst}"
        )
        short += [steps, f"overhead {overhead:.2f} %", f"CPU steal {percent(steal)}"]
        if (others := facts.foreign_cpus or 0.0) >= LEAST_FOREIGN:
            short.append(f"other programs used {others:.1f} CPUs")
    if analysis.dropped_records:
        short.append(f"{analysis.dropped_records} records dropped")
    if analysis.left_out:
        short.append(f"{counted(analysis.left_out, 'value')} that look like secrets left out")
    return Quality(tuple(analysis.notes), said, tuple(short))


def _microseconds(ns: float) -> str:
    return f"{ns / 1e3:.0f} µs" if ns >= 10_000 else f"{ns / 1e3:.1f} µs"
