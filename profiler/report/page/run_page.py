"""The page of a run: verdict, why, next; then its time from begin to end; then all else that was measured."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from ...analyse.ranks import figures as ranks_figures
from ...analyse.run.analysis import Analysis
from ...analyse.run.facts import Facts
from ...analyse.run.stall_breakdown import PARTS, UNTOLD
from ...analyse.timeline.timeline import Timeline, ranks_with_steps, timelines
from ...record.code import Code
from ...record.run import Run
from ..document import (
    Caution,
    Changes,
    EvidenceTable,
    LinesOfCode,
    OtherFindings,
    SharesOfTime,
    Verdict,
    blocks_of_kind,
)
from ..documents.run import FEW_STEPS, rate_now, run_document
from ..render.html import page_sections
from ..words.figures import share
from .flame import stacks_of
from .frame import render
from .overview import duration, gap_histogram, over_time
from .timeline_data import data_of, shown_of

_ELSEWHERE = {"format", "version", "fields", "clock", "notices", "command", "id", "whyidle", "python", "torch"}
_ELSEWHERE |= {"started_at", "host", "device", "ended", "plan", "code"}
"""Keys of run.json that have a line of their own, or say nothing of the run's settings."""
MOST_CHARACTERS = 300

Rows = list[tuple[str, str]]


def environment_of(analysis: Analysis) -> Rows:
    """(what, value) of what ran on what."""
    info = analysis.info
    host, device = info.get("host") or {}, info.get("device") or {}
    rows = [
        ("command", command_of(info)),
        ("started", info.get("started_at")),
        ("lasted", None if analysis.duration_s is None else duration(analysis.duration_s)),
        ("device", _device(device)),
        ("driver", device.get("driver")),
        ("host", ", ".join(str(host[k]) for k in ("name", "machine") if host.get(k))),
        ("CPUs of the machine", host.get("cpus")),
        ("Python", info.get("python")),
        ("torch", info.get("torch")),
        ("code", _code(info)),
        ("whyidle", info.get("whyidle")),
        ("run", info.get("id")),
    ]
    return [(what, _short(value)) for what, value in rows if value not in (None, "")]


def settings_of(analysis: Analysis) -> Rows:
    """(what, value): the loader's settings as they were seen, then whatever else run.json says."""
    rows = _loader(analysis.facts) if analysis.facts is not None else []
    for key, value in analysis.info.items():
        # That `--headroom` was not asked for is no setting.
        if key not in _ELSEWHERE and value not in (None, {}, []) and (key, value) != ("headroom", False):
            rows += _flat(key, value)
    return [(what, _short(value)) for what, value in rows]


def command_of(info: dict[str, Any]) -> str:
    """As it would be typed."""
    command = info.get("command")
    return shlex.join(str(word) for word in command) if isinstance(command, list) else ""


def _code(info: dict[str, Any]) -> str | None:
    code = Code.of(info)
    if code is None:
        return None
    return f"{code}, branch {code.branch}" if code.branch else str(code)


def _device(device: dict[str, Any]) -> str:
    title = str(device.get("title") or device.get("name") or "")
    count = device.get("count")
    words = f"{count} × {title}" if isinstance(count, int) and count > 1 else title
    if device.get("kind") == "emulated" and "emulated" not in words:
        return f"{words} (emulated)"
    return words


def _loader(facts: Facts) -> list[tuple[str, Any]]:
    told = (
        ("batch size", facts.batch_size),
        ("num_workers", facts.set_workers),
        ("prefetch_factor", facts.set_prefetch),
        ("persistent_workers", facts.persistent_workers),
        ("pin_memory", facts.pin_memory),
        ("iterable dataset", facts.iterable),
        ("batches handed over as they come", facts.out_of_order),
        ("workers are new Python processes", facts.starts_python),
    )
    return [(name, value) for name, value in told if value is not None]


def _flat(name: str, value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return [row for key, inner in value.items() if inner is not None for row in _flat(f"{name}.{key}", inner)]
    return [(name, value)]


def _short(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    words = ", ".join(str(each) for each in value) if isinstance(value, list) else str(value)
    return words if len(words) <= MOST_CHARACTERS else f"{words[: MOST_CHARACTERS - 1]}…"


SCRIPTS = ("uPlot.iife.min.js", "unpack.js", "words.js", "colours.js", "timeline.js")

DRAWN_HERE = (Verdict, SharesOfTime, Changes, LinesOfCode, EvidenceTable, OtherFindings)
"""Blocks that this page draws in its own way."""


def page(analysis: Analysis, runs: Sequence[Run], cost: str | None = None) -> str:
    """`runs`: those that were analysed. `cost`: what the run cost, in a line."""
    document = run_document(analysis, cost)
    (verdict,) = blocks_of_kind(document, Verdict)
    why = blocks_of_kind(document, SharesOfTime)
    ranks = ranks_with_steps(analysis)
    over = timelines(analysis, runs, shown_of(ranks, None if analysis.job is None else analysis.job.lead))
    left_out = max(0, len(ranks) - len(over))
    lead = _lead(analysis, over)
    overview, utilisation_drawn = (None, False) if lead is None else over_time(lead)
    facts = analysis.facts
    leading = ranks_figures.leading(analysis, runs)
    stacks = None if leading is None else stacks_of(*leading)
    further = page_sections(block for block in document.blocks if not isinstance(block, DRAWN_HERE))
    return render(
        "run.html.j2",
        title=document.title,
        data=None if lead is None else data_of(over, lead.rank),
        scripts=(*(SCRIPTS if over else ()), *(["flame.js"] if stacks is not None else ())),
        styles=(*(("uPlot.min.css", "timeline.css") if over else ()), *(["flame.css"] if stacks is not None else ())),
        cautions=blocks_of_kind(document, Caution),
        emulated=facts is not None and facts.device_kind == "emulated",
        cost=cost,
        verdict=verdict.finding,
        shares=ranks_figures.shares(analysis),
        why=[row for block in why for row in block.lines],
        why_title=next((block.title for block in why), ""),
        why_words=[words for block in why for words in block.remarks],
        changes=[said for block in blocks_of_kind(document, Changes) for said in block.said],
        where=[row for block in blocks_of_kind(document, LinesOfCode) for row in block.rows],
        others=[
            (found, Changes(found.next, block.now).said)
            for block in blocks_of_kind(document, OtherFindings)
            for found in block.findings
        ],
        stacks=stacks,
        tiles=list(_tiles(analysis, facts)),
        overview=overview,
        utilisation_drawn=utilisation_drawn,
        parts_shown=[] if lead is None else [part for part in (*PARTS, UNTOLD) if len(lead.parts.get(part, ()))],
        waiter="" if facts is None else facts.waiter,
        several=len(over) > 1,
        left_out_ranks=left_out,
        lead=None if lead is None else lead.rank,
        gaps=None
        if facts is None or not facts.told_apart or not len(facts.parts.gaps_ns)
        else gap_histogram(facts.parts.gaps_ns),
        further=[section for section in further if section.title],
        environment=environment_of(analysis),
        settings=settings_of(analysis),
    )


def _lead(analysis: Analysis, over: Sequence[Timeline]) -> Timeline | None:
    """Whose figures stand for the job."""
    number = analysis.job.lead if analysis.job is not None else None
    return next((t for t in over if t.rank == number), over[0] if over else None)


def _tiles(analysis: Analysis, facts: Facts | None) -> Iterator[tuple[str, Any, str]]:
    if facts is None:
        return
    rate, step = rate_now(analysis), analysis.step_ms
    if facts.window.count >= FEW_STEPS:
        if rate is None:
            yield "steps/s", f"{1e9 * facts.window.count / facts.parts.wall_ns:.1f}", "samples are not known"
        else:
            yield "samples/s", f"{rate:.1f}", f"batch {facts.batch_size}" if facts.batch_size else ""
    shares = ranks_figures.shares(analysis)
    what = {"cpu": "the processor computing", "emulated": "the emulated device computing"}
    yield "busy", share(shares.get("compute")), what.get(facts.device_kind, "the device computing, by its events")
    yield "waiting for data", share(shares.get("input")), "that nothing hides"
    if facts.device_kind != "cpu":
        seen = ranks_figures.figure(analysis, "utilisation_pct")
        about = "computed as NVML does" if facts.device_kind == "emulated" else "NVML: any kernel"
        yield "utilisation", None if seen is None else f"{seen:.1f} %", about
    if step:
        yield "a step, median", f"{step['p50']:.1f} ms", f"95 % below {step['p95']:.1f} ms"
    wall_ns = ranks_figures.wall_ns(analysis) or facts.parts.wall_ns
    yield "window", duration(wall_ns / 1e9), f"{ranks_figures.steps(analysis)} steps after the warm-up"
