"""A run in words: the verdict, where the time went, lines of code, what to change, evidence, in this order."""

from __future__ import annotations

from collections.abc import Iterator
from math import isnan

from ...analyse.causes.diagnosis import LEAST_STEPS
from ...analyse.ranks import figures as ranks_figures
from ...analyse.run import startup as before
from ...analyse.run.analysis import Analysis, RankAnalysis
from ...analyse.run.facts import Facts
from ...analyse.run.loader_stats import WAITING, WAITING_FOR_CPU, LoaderStats
from ...analyse.run.resource_usage import said_of
from ...analyse.run.stall_breakdown import TOTAL, UNTOLD
from ...analyse.run.trends import FALLS, FLAT, GROWS, JUMPS
from ...record.run import ImageDecoding
from ..document import (
    BAR_SIGNS,
    LEFT,
    RIGHT,
    Bar,
    Block,
    Caution,
    Document,
    Heading,
    Length,
    Paragraph,
    Part,
    PartSign,
    Space,
    TableColumn,
    Title,
    brief_actions,
    brief_quality,
    emulated_device,
    finding_sections,
    line,
    quality_section,
    section,
    table,
    time_section,
    under,
    verdict_blocks,
)
from ..words.code import command_line, stage_rows
from ..words.figures import (
    LEAST_SHARE,
    NO_CAUSE,
    NOT_MEASURED,
    counted,
    evidence_value,
    part_name,
    percent,
    share,
    shown_parts,
)
from .roofline import decoding_words

FEW_RANKS, FEW_STEPS = 8, 10
"""The short version has no table of more ranks; a bar of fewer steps would look like a finding."""
LEAST_FOREIGN, LEAST_IDLE = 0.3, 0.05
"""CPUs of other programs, and a share of gaps, that are worth a line."""
STAGE_BAR = 16
"""Signs of a bar as long as all the time before the first step."""

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
    """Say all of it. `cost`: what the run cost, in a line."""
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
    yield from verdict_blocks(analysis.verdict)


def _brief(analysis: Analysis, cost: str | None) -> Iterator[Block]:
    """One screen."""
    yield from _head(analysis, cost)
    facts, shares = analysis.facts, ranks_figures.shares(analysis)
    if facts is not None and facts.window.count >= FEW_STEPS:
        yield Paragraph(line(Bar(shares, BAR_SIGNS)), 1)
        parts = (line(PartSign(p), f" {part_name(p)} {share(shares[p])}   ") for p in shown_parts(shares))
        yield Paragraph(line(*parts, f"a step: {facts.parts.wall_ns / facts.window.count / 1e6:.2f} ms"), 1)
        devices, idle = max(1, len(analysis.ranks)), 1 - shares.get("compute", 1.0)
        if facts.device_kind == "cuda" and idle >= LEAST_IDLE:
            whose = "The GPU is" if devices == 1 else f"The {devices} GPUs are"
            yield Paragraph(f"{whose} idle {share(idle, 0)} of the time: {24 * idle * devices:.1f} GPU-hours a day.", 1)
    yield Space()
    yield from brief_actions(analysis.verdict, analysis.findings, rate_now(analysis))
    if 1 < len(analysis.ranks) <= FEW_RANKS and analysis.verdict.cause != "none":
        yield from (*ranks_blocks(analysis), Space())
    yield from brief_quality(_quality(analysis)[1], analysis.notes, show=analysis.verdict.cause is None)


def _blocks(analysis: Analysis, cost: str | None) -> Iterator[Block]:
    facts, verdict, now = analysis.facts, analysis.verdict, rate_now(analysis)
    yield from (*_head(analysis, cost), Space())
    if facts is not None:
        title = "Where the time went"
        if analysis.job is not None and analysis.ranks:
            title += f", averaged over {len(analysis.job.ranks)} ranks"
        step_ms, bar = facts.parts.wall_ns / facts.window.count / 1e6, facts.window.count >= FEW_STEPS
        yield from time_section(title, time_parts(analysis, facts), step_ms, bar, time_remarks(analysis, facts))
    others = [found for found in analysis.findings if found is not verdict]
    yield from finding_sections(verdict, others, now, _stages(analysis, now))
    if analysis.ranks:
        yield from section("Ranks", *under(ranks_blocks(analysis)))
        if analysis.job is not None:
            yield from (Heading(f"Rank {analysis.job.lead} by itself"), Space())
    if facts is not None:
        yield from workers_blocks(facts, verdict.cause)
        yield from _device(analysis, facts)
        yield from startup_blocks(facts)
        yield from trend_blocks(facts)
    else:
        yield from _machine(analysis)
    yield from quality_section(analysis.notes, _quality(analysis)[0])


def _stages(analysis: Analysis, now: float | None) -> Iterator[Block]:
    """What the time of the verdict went into, and how fast this machine decodes the images."""
    if (stages := analysis.verdict.stages) is not None:
        rows = table(stage_rows(stages), LEFT, RIGHT, LEFT, LEFT, indent=1)
        yield from section(f"Stages, of {stages.time}", rows)
    if (decoding := ImageDecoding.of(analysis.info)) is not None:
        timed = None if analysis.facts is None else analysis.facts.loader.timed
        yield from (Paragraph(decoding_words(decoding, now, stages, timed)), Space())


def headline(analysis: Analysis) -> str:
    """Say what ran, on what, how fast, and how it ended unless well."""
    info, facts = analysis.info, analysis.facts
    trial, device = info.get("trial") or {}, (info.get("device") or {}).get("title")
    what = [str(trial[k]) for k in ("scenario", "net", "pipeline") if trial.get(k)]
    if trial.get("case"):
        what[:1] = [" ".join([*what[:1], str(trial["case"])])]
    if facts is not None:
        what.append(f"batch {NOT_MEASURED if facts.batch_size is None else facts.batch_size}")
    if not trial:
        what.insert(0, command_line(info.get("command")))
    said = " · ".join(what)
    if device is not None or facts is not None:
        said += f" on {device or 'unknown device'}"
    if facts is not None:
        said += f", {len(analysis.ranks)} ranks" if analysis.ranks else ""
        if facts.window.count >= FEW_STEPS:
            said += f": {' '.join(pace(analysis, facts))}"
    if (planted := trial.get("planted")) is not None:
        said += f", planted {' and '.join(planted) or 'nothing'}"
    return f"{said}{_ending(analysis)}"


def pace(analysis: Analysis, facts: Facts) -> tuple[str, str]:
    """Give how fast it trained, and in what: samples a second, or steps where samples are not known."""
    rate = rate_now(analysis)
    if rate is None:
        return f"{1e9 * facts.window.count / facts.parts.wall_ns:.1f}", "steps/s"
    return f"{rate:.1f}", "samples/s"


def stand_in_of(analysis: Analysis) -> str | None:
    """Tell what the generated data of a run stand for; `None` of real ones, and of a run that does not say."""
    return (analysis.info.get("dataset") or {}).get("stand_in")


_ENDINGS = {-2: "stopped by Ctrl-C", 130: "stopped by Ctrl-C", -15: "stopped by SIGTERM", 143: "stopped by SIGTERM"}
_STATUSES = {"oom": "out of memory", "stopped": "stopped by Ctrl-C"}


def _ending(analysis: Analysis) -> str:
    ended, facts = analysis.info.get("ended"), analysis.facts
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
    if facts is None:
        return f", {how}"
    return f", {how} after {counted(facts.window.count + facts.window.warmup_steps, 'step')}"


def rate_now(analysis: Analysis) -> float | None:
    """Give samples a second, of all ranks together; `None` where samples are not known."""
    if analysis.facts is None or not analysis.facts.samples_known:
        return None
    return None if analysis.job is None else analysis.job.samples_per_s


def time_parts(analysis: Analysis, facts: Facts) -> list[Part]:
    """Give the parts of the time of a step that are worth showing."""
    shares, meaning = ranks_figures.shares(analysis), _MEANING | (_ON_CPU if facts.device_kind == "cpu" else {})
    parts: list[Part] = [(part, shares[part], meaning[part]) for part in shown_parts(shares)]
    if UNTOLD not in shares and "input" not in shares:
        parts.append(("input", None, "no fetch was recorded: waits for data are within the rest"))
    return parts


def time_remarks(analysis: Analysis, facts: Facts) -> list[str]:
    """Say what the parts of the time do not show, a sentence each."""
    if (job := analysis.job) is not None and analysis.ranks:
        if job.waiting_share is None or job.waiting_share < LEAST_SHARE:
            return []
        return [f"Within computing, ranks wait for the last of them {share(job.waiting_share)} of the time."]
    said, parts = [], facts.parts
    if (own := facts.own_loop) is not None:
        shares = ((what, part.value, 100 * part.low, 100 * part.high) for what, part in own.shares.items())
        told = ", ".join(f"{what} {share(value, 0)} ({low:.0f}–{high:.0f})" for what, value, low, high in shares)
        said.append(f"{counted(own.looks, 'stack sample')} divide it: {told}.")
    if len(facts.window.steps) < LEAST_STEPS:
        return said
    if (first := parts.first_fetch_ns / parts.wall_ns) >= LEAST_SHARE:
        said.append(f"First batches of epochs: {share(first)} of the time.")
    if parts.hidden_wait_ns > 0 and facts.device_kind != "cpu":
        fetch, cost = (ns / 1e6 / facts.window.count for ns in (parts.fetch_ns, parts.input_ns))
        said.append(f"Fetching takes {fetch:.2f} ms a step, of which the device stands still {cost:.2f} ms.")
    return said


MOST_ROWS = 16
LEAST_COLUMN = 0.005
"""A part that is smaller on all ranks has no column."""
_WAITING = ("input", "copy", "sync", "host", "boundary")


def ranks_blocks(analysis: Analysis) -> Iterator[Block]:
    """Show one row a rank; of very many the latest, and how many are left out."""
    job, ranks = analysis.job, analysis.ranks
    late, waits = ({}, {}) if job is None else (job.late_ns, job.waits_ns)
    known = [part.analysis.facts for part in ranks if part.analysis.facts is not None]
    parts = [p for p in _WAITING if any(facts.shares.get(p, 0.0) >= LEAST_COLUMN for facts in known)]
    hosts = len({part.host for part in ranks}) > 1
    figures = ("samples/s", *(f"{p} %" for p in parts), "compute %", "late ms", "waits ms")

    def row(part: RankAnalysis) -> list[str]:
        facts, first = part.analysis.facts, [str(part.rank), *([part.host or NOT_MEASURED] if hosts else [])]
        if facts is None:
            return [*first, *[NOT_MEASURED] * len(figures), "no steps"]
        shares = facts.shares
        behind = (late.get(part.rank), waits.get(part.rank))
        return [
            *first,
            f"{facts.samples_per_s:.1f}",
            *(f"{100 * shares[p]:.1f}" if p in shares else NOT_MEASURED for p in (*parts, "compute")),
            *(NOT_MEASURED if ns is None else f"{ns / 1e6:.1f}" for ns in behind),
            part.analysis.verdict.cause or NO_CAUSE,
        ]

    shown = sorted(ranks, key=lambda part: (-late.get(part.rank, 0.0), part.rank))[:MOST_ROWS]
    shown = sorted(shown, key=lambda part: part.rank) if len(ranks) > MOST_ROWS else list(ranks)
    yield table(
        map(row, shown),
        TableColumn("rank", right=True),
        *([TableColumn("host", wraps=False, most=24)] if hosts else []),
        *(TableColumn(title, right=True, wraps=False) for title in figures),
        TableColumn("by itself", wraps=False),
        head_tone="dim",
    )
    if len(shown) < len(ranks):
        yield Paragraph(f"and {len(ranks) - len(shown)} ranks that are late by less; --json has them all")
    if late:
        yield Paragraph(
            "late: how much later than the other ranks it is ready for them, a step; waits: how long it waits for the "
            "last one, which counts as computing here."
        )


LEAST_STAGE_NS = 500_000
"""A stage that took less would read 0.00 s."""
_STAGES = {
    before.IMPORTS: "Python starts and imports modules",
    before.SET_UP: "everything else before the first batch is asked for",
    before.EVALUATING: "validation",
    before.SKIPPING: "batches fetched and not trained on",
    before.FIRST_FETCH: "workers start and prepare the first batch",
    before.COMPILING: "torch's compiler",
    before.FIRST_STEP: "",
}


def startup_blocks(facts: Facts) -> Iterator[Block]:
    """Show a row for each stage of the time before the first step. Nothing where its begin is not known."""
    startup = facts.startup
    if startup is None or startup.run_ns <= 0 or startup.total_ns <= 0:
        return
    stages = [(stage, ns) for stage in before.STAGES if (ns := startup.ns(stage)) >= LEAST_STAGE_NS]
    bar = facts.window.count >= FEW_STEPS
    rows = [
        (
            stage,
            f"{ns / 1e9:.2f} s",
            share(ns / startup.run_ns),
            line(Length(round(STAGE_BAR * ns / startup.total_ns))) if bar else "",
            _STAGES[stage],
        )
        for stage, ns in stages
    ]
    since = "its process began" if startup.whole else "its recording began (what came before was not measured)"
    run_s, total_s = startup.run_ns / 1e9, startup.total_ns / 1e9
    yield from section(
        "Until the end of the first step",
        table(rows, LEFT, RIGHT, RIGHT, TableColumn(wraps=False, least=STAGE_BAR), LEFT, indent=1),
        Paragraph(f"{total_s:.2f} s of the run's {run_s:.2f} s, since {since}; outside the window", 1),
    )


LEAST_PART = 0.01
"""Share of a step, from which a part that does not rise has a row."""


def trend_blocks(facts: Facts) -> Iterator[Block]:
    """Show a row a part, and one of the step as a whole. Nothing of a run with too few steps for a trend."""
    if not facts.trends:
        return
    least = LEAST_PART * max(facts.trends[-1].first_ms, facts.trends[-1].last_ms)
    shown = [each for each in facts.trends if each.since is not None or max(each.first_ms, each.last_ms) >= least]
    rows = []
    for trend in shown:
        name = {TOTAL: "a step", "boundary": "boundary, a stretch"}.get(trend.part, part_name(trend.part))
        at = f"at step {trend.since}" if trend.shape == JUMPS else f"from step {trend.since} on"
        said = {FLAT: "no trend", FALLS: "falls", GROWS: f"{GROWS} {at}", JUMPS: f"{JUMPS} {at}"}
        change = f"{trend.slope.value:+.2f} ({trend.slope.low:+.2f} to {trend.slope.high:+.2f})"
        does = said.get(trend.shape, f"rises {at}, {trend.why}")
        rows.append((name, f"{trend.first_ms:.2f}", f"{trend.last_ms:.2f}", change, does))
    heads = (TableColumn(head, right=True) for head in ("first fifth", "last fifth", "in 1000 steps"))
    yield from section("Over the run, ms of a step", table(rows, LEFT, *heads, LEFT, indent=1))


def _machine(analysis: Analysis) -> Iterator[Block]:
    """What is known of a run whose steps were not seen."""
    if (seen := analysis.machine) is None:
        return
    measured = (
        ("CPUs used by the command", seen.tree_cpus, ""),
        ("CPUs it may use", seen.cpu_budget, ""),
        ("CPU in use on the machine", seen.machine_busy_pct, "%"),
        ("GPU utilisation (NVML)", seen.utilisation_pct, "%"),
        ("SM active", seen.sm_active_pct, "%"),
        ("GPU memory, most", seen.memory_peak_bytes, "bytes"),
    )
    if rows := [(what, evidence_value(value, unit)) for what, value, unit in measured if value == value]:
        yield from section("Machine, over the whole recording", table(rows, indent=1))


def _device(analysis: Analysis, facts: Facts) -> Iterator[Block]:
    """What different clocks and counters call utilisation, side by side, each with what it is averaged over."""
    seen, parts, gaps = facts.sampled, facts.parts, analysis.gaps_ms
    whole = f", of the {parts.wall_ns / 1e9:.1f} s of the window" if facts.window.count >= FEW_STEPS else ""
    busy = share(parts.share("compute") if facts.told_apart else None)

    def windows(length_ms: float, whose: str) -> str:
        return whose if isnan(length_ms) else f"{whose}, in windows of {length_ms:.0f} ms"

    if facts.device_kind == "cpu":
        rows = [("busy", busy, f"the processor computes a step{whole} (AU is the same)")]
    else:
        utilisation = windows(seen.utilisation_window_ms, "any kernel of any program")
        if seen.zero_windows_pct >= 0:
            utilisation += f"; {seen.zero_windows_pct:.0f} % of the windows read 0"
        stepping = share(parts.stepping_share if facts.told_apart else None)
        rows = [
            ("AU (MLPerf Storage)", stepping, f"from begin to end of a step{whole}"),
            ("busy", busy, f"computing a step, pauses left out{whole}"),
            ("SM active", percent(seen.sm_active_pct), windows(seen.sm_active_window_ms, "the multiprocessors")),
            ("utilisation (NVML)", percent(seen.utilisation_pct), utilisation),
        ]
    yield from (Heading("Device"), table(rows, LEFT, RIGHT, LEFT, indent=1))
    where = " in the steps looked at" if facts.window.looked_at < 1 else ""
    if gaps and 1 - parts.share("compute") >= LEAST_IDLE and len(facts.window.steps) >= LEAST_STEPS:
        yield Paragraph(
            f"idle {counted(len(parts.gaps_ns), 'time')}{where}: half of them below {gaps['p50']:.1f} ms, 95 % below "
            f"{gaps['p95']:.1f} ms, the longest {gaps['max']:.1f} ms; {gaps['total'] / 1e3:.2f} s in all",
            1,
        )
    yield Space()


def _quality(analysis: Analysis) -> tuple[str | None, list[str]]:
    """How much was recorded and at what cost, in a sentence (`None`: no steps), and in a few words each."""
    facts, said, short = analysis.facts, None, []
    if facts is not None:
        worst = ", on the rank on which they took most" if analysis.ranks else ""
        hooks_us = ranks_figures.figure(analysis, "overhead_us_per_step") or 0.0
        overhead = ranks_figures.figure(analysis, "overhead_pct") or 0.0
        steps = f"{counted(facts.window.count, 'step')} after {facts.window.warmup_steps} of warm-up"
        said = (
            f"{steps}; whyidle's hooks took {hooks_us:.{0 if hooks_us >= 10 else 1}f} µs a step (median, by their own "
            f"clock; {overhead:.3f} % of the time){worst}"
        )
        steal = percent(ranks_figures.figure(analysis, "cpu_steal_pct"))
        short += [steps, f"overhead {overhead:.2f} %", f"CPU steal {steal}"]
        if (others := facts.foreign_cpus) >= LEAST_FOREIGN:
            short.append(f"other programs used {others:.1f} CPUs")
    if analysis.dropped_records:
        short.append(f"{analysis.dropped_records} records dropped")
    if analysis.left_out:
        short.append(f"{counted(analysis.left_out, 'value')} that look like secrets left out")
    return said, short


MOST_SHOWN = 5
SLOW_FACTOR = 3
"""Samples are listed as slow from so many times the time of an average one on."""
LEAST_SLOW_MS = 1.0
"""Shorter ones are not worth a word."""
LEAST_INPUT = 0.05
"""Where the device waits less for data, how batches are made is told in few words."""
LEAST_SAMPLE_MS = 0.1
"""Where a sample takes less, too."""
LEAST_REST_PCT = 0.5
LEAST_READ_BYTES = 100
MANY_FAULTS = 100
"""Page faults of a batch, at some 0.1 to 1 µs each."""
_DOES = {
    "reading": "waiting for reads of files",
    "preparing samples": "decoding, transforming and the rest of a sample's work",
    "collating": "stacking samples into a batch",
    WAITING_FOR_CPU: "ready to run while other threads run",
    WAITING: "locks, sleeps, the network, other threads",
}


def workers_blocks(facts: Facts, cause: str | None = None) -> Iterator[Block]:
    """Show how batches are prepared by the loader that the training steps get theirs from. Nothing where it said
    nothing. `cause`: of the verdict; beside one on validation, which has a loader of its own, it is said whose."""
    loader, waits = facts.loader, facts.parts.share("input") >= LEAST_INPUT
    if loader.workers == 0:
        return
    validates = facts.outside is not None and facts.outside.evaluation is not None
    yield Heading("Workers of the training's loader" if cause == "host.boundary" and validates else "Workers")
    yield table(_who(facts, waits), indent=1)
    sample_ms = loader.make_ms_per_sample
    if waits and not sample_ms < LEAST_SAMPLE_MS:
        yield Paragraph("Preparing batches, by what it waits for or does:", 1)
        yield table(_making(facts), LEFT, RIGHT, LEFT, indent=2)
        if reads := list(_reads(loader)):
            yield table(reads, indent=1)
        yield from _transforms(loader)
        least = SLOW_FACTOR * sample_ms
        if slow := [each for each in loader.slowest if each.ms > LEAST_SLOW_MS and each.ms > least > 0][:MOST_SHOWN]:
            yield Paragraph("Straggler samples:", 1)
            index = ("" if each.index is None else f"index {each.index}" for each in slow)
            rows = ((_ms(each.ms), at, each.file or "") for each, at in zip(slow, index, strict=True))
            yield table(rows, RIGHT, LEFT, LEFT, indent=2)
    yield Space()


def _who(facts: Facts, waits: bool) -> Iterator[tuple[str, str]]:
    loader = facts.loader
    if facts.made_in_training:
        yield "batches prepared", "in the training process"
    else:
        busy = "" if isnan(loader.worker_busy_pct) else f", busy {loader.worker_busy_pct:.0f} % of the time"
        yield "workers", f"{loader.workers}{busy}"
    if loader.queue_ready_mean >= 0 and loader.queue_capacity > 0:
        yield "batches ready", f"{loader.queue_ready_mean:.1f} of {loader.queue_capacity} when the training asks"
    if loader.make_ms_per_sample >= 0:
        yield "a sample takes", _ms(loader.make_ms_per_sample)
    if facts.blocked_pct >= 1 and waits:
        yield "slow batches", f"{facts.blocked_pct:.0f} % of the wait is for one batch while a later one is finished"


def _making(facts: Facts) -> Iterator[tuple[str, str, str]]:
    """Rows that sum to 100 %."""
    loader, does = facts.loader, _DOES
    if facts.own_workers is not None:
        does = does | {"reading": "waiting for its own workers"}
    for name, part in loader.stages.items():
        yield name, percent(part), does.get(name, "")
    rest = 100.0 - sum(loader.stages.values())
    if rest >= LEAST_REST_PCT:
        yield "the rest", percent(rest), "not divided further"
    if isnan(loader.unsplit_pct) and loader.cpu_pct >= 0:
        yield "of all this", percent(min(100.0, loader.cpu_pct)), "on a CPU"


def _reads(loader: LoaderStats) -> Iterator[tuple[str, str]]:
    """What a sample reads, and the page faults of a batch."""
    read, stored, faults = (
        loader.read_chars_bytes_per_sample,
        loader.storage_bytes_per_sample,
        loader.minor_faults_per_batch,
    )
    if read >= LEAST_READ_BYTES:
        of_which = "" if isnan(stored) else f", of which {stored / 1e3:.1f} kB from storage"
        yield "a sample reads", f"{read / 1e3:.1f} kB{of_which}"
    if faults >= 0 and (loader.major_faults > 0 or faults >= MANY_FAULTS):
        slow = f", {loader.major_faults} with I/O in all" if loader.major_faults > 0 else ""
        yield "page faults", f"{faults:.0f} a batch{slow}"


def _transforms(loader: LoaderStats) -> Iterator[Block]:
    costly, timed = sorted(loader.transforms, key=lambda t: -t.ms), loader.timed
    if not costly:
        return

    def part(ms: float, samples: float = 1.0) -> str:
        whole = 0.0 if timed is None else timed.ms_per_sample
        return percent(100 * (ms / samples) / whole) if whole else ""

    samples = 1 if timed is None else timed.samples
    rows = [
        (cost.name, _ms(cost.ms_per_call), part(cost.ms, samples), f"{cost.calls} calls timed")
        for cost in costly[:MOST_SHOWN]
    ]
    what, more = "Transforms, per call:", costly[MOST_SHOWN:]
    if timed is not None:
        if more:
            name = "1 other" if len(more) == 1 else f"{len(more)} others"
            rows.append((name, "", part(sum(cost.ms for cost in more), samples), ""))
        what = f"Transforms, per call, and their shares of preparing a sample ({_ms(timed.ms_per_sample)} while timed):"
        rest = max(0.0, timed.ms_per_sample - timed.transforms_ms_per_sample)
        rows.append(("all else", _ms(rest), part(rest), "loading, decoding, collating"))
    yield Paragraph(what, 1)
    yield table(rows, LEFT, RIGHT, RIGHT, LEFT, indent=2)


def _ms(ms: float) -> str:
    if ms < LEAST_SAMPLE_MS:
        return f"{1e3 * ms:.2g} µs"
    return f"{ms:.0f} ms" if ms >= 10 else f"{ms:.2g} ms"
