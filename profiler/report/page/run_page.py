"""The page of a run: verdict, where the time went, what to change, the time from start to end, all other figures.

A timeline as the page's scripts draw it, within a budget whatever the length of the run. Times are
ms since the begin of the job's first window, on one axis for the ranks of all hosts. Parts of the
time are sums per bin; step by step they are in the trace (`report/export/trace.py`).
"""

from __future__ import annotations

import base64
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ...analyse.ranks import figures as ranks_figures
from ...analyse.run.analysis import Analysis
from ...analyse.run.facts import Facts
from ...analyse.run.stall_breakdown import PARTS, UNTOLD
from ...analyse.timeline.timeline import (
    Timeline,
    bins_of,
    lines_of,
    ranks_with_steps,
    timelines,
)
from ...record.code import Code
from ...record.files import plain
from ...record.run import Run
from ..document import code_rows, said_of, time_lines
from ..documents.run import FEW_STEPS, pace, rate_now, run_document, time_parts, time_remarks
from ..export.steps import axis_of
from ..render import page_sections
from ..words.figures import share
from .flame import stacks_of
from .frame import render

TYPES = {"u16": "<u2", "f32": "<f4", "f64": "<f8"}
"""What `static/unpack.js` reads."""
BINS, LEAST_BINS = 4_000, 500
"""Of all ranks together, and of a rank of many at least."""
BINS_A_STEP = 4
"""More say nothing of a short run."""
LINE_POINTS, LEAST_POINTS = 5_000, 500
"""Of a line, shared by the ranks."""
MOST_RANKS = 16
MOST_DEVICES = 16
"""Of those whose samples a rank's recording holds: all of its host, where nothing said which it uses."""
SHARE = 65_535
"""What a share of 1 of a bin is stored as."""


def pack(values: npt.ArrayLike, type_: str) -> dict[str, str]:
    """As `{"type": …, "base64": …}`. NaN, of floats, is what was not measured."""
    bytes_ = np.asarray(values).astype(TYPES[type_]).tobytes()
    return {"type": type_, "base64": base64.b64encode(bytes_).decode("ascii")}


def data_of(shown: Sequence[Timeline], lead: int) -> dict[str, Any]:
    """Make what the timeline's script reads. `lead`: the rank to show first."""
    offsets = axis_of(shown).offsets
    origin = min(timeline.begin_ns + offset for timeline, offset in zip(shown, offsets, strict=True))
    # Each on its own host's clock.
    ranks = [_rank(each, origin - offset, len(shown)) for each, offset in zip(shown, offsets, strict=True)]
    return {"device": shown[0].facts.device_kind, "lead": lead, "ranks": ranks}


def _rank(timeline: Timeline, origin: int, among: int) -> dict[str, Any]:
    lines = lines_of(timeline, max(LEAST_POINTS, LINE_POINTS // among))
    devices = sorted({number for line in lines if (number := line.device) is not None})
    bins = bins_of(timeline, max(LEAST_BINS, min(BINS // among, BINS_A_STEP * len(timeline.steps))))
    width, first, last = np.diff(bins.edges_ns), int(bins.edges_ns[0]), int(bins.edges_ns[-1])
    parts = {part: bins.parts[part] for part in (*PARTS, UNTOLD) if part in bins.parts}
    begin = min(int(timeline.steps["fetch_begin_ns"][0]), timeline.begin_ns)
    return {
        "rank": timeline.rank,
        "host": plain(timeline.host),
        "begin": (begin - origin) / 1e6,
        "end": (timeline.end_ns - origin) / 1e6,
        "bins": {
            "count": len(width),
            "begin": (first - origin) / 1e6,
            "width": float(last - first) / len(width) / 1e6,
            "parts": {part: pack(np.rint(SHARE * ns / width), "u16") for part, ns in parts.items()},
            "steps": pack(bins.steps, "f32"),
            "samples": None if bins.samples is None else pack(bins.samples, "f32"),
        },
        "lines": [
            {"name": line.name, "t": pack((line.t_ns - origin) / 1e6, "f64"), "v": pack(line.values, "f32")}
            for line in lines
            if line.device is None or line.device in devices[:MOST_DEVICES]
        ],
        "devices": devices[:MOST_DEVICES],
        "left_out_devices": len(devices[MOST_DEVICES:]),
    }


_UNITS = ((3_600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"))


def duration(seconds: float) -> str:
    """Write it in the unit that gives it a figure before the point."""
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return "0 s" if seconds == 0 else f"{seconds * 1e3:.2g} ms"


_ELSEWHERE = {"format", "version", "fields", "clock", "notices", "command", "id", "whyidle", "python", "torch"}
_ELSEWHERE |= {"started_at", "host", "device", "ended", "plan", "code"}
"""Keys of run.json that have a line of their own, or are no settings of the run."""
MOST_CHARACTERS = 300

Rows = list[tuple[str, str]]


def environment_of(analysis: Analysis) -> Rows:
    """Collect (what, value) of what ran on what."""
    info = analysis.info
    host, device, code, command = info.get("host") or {}, info.get("device") or {}, Code.of(info), info.get("command")
    title, count = str(device.get("title") or device.get("name") or ""), device.get("count")
    title = f"{count} × {title}" if isinstance(count, int) and count > 1 else title
    if device.get("kind") == "emulated" and "emulated" not in title:
        title += " (emulated)"
    rows = [
        ("command", shlex.join(map(str, command)) if isinstance(command, list) else ""),
        ("started", info.get("started_at")),
        ("duration", None if analysis.duration_s is None else duration(analysis.duration_s)),
        ("device", title),
        ("driver", device.get("driver")),
        ("host", ", ".join(str(host[k]) for k in ("name", "machine") if host.get(k))),
        ("CPUs of the machine", host.get("cpus")),
        ("Python", info.get("python")),
        ("torch", info.get("torch")),
        ("code", None if code is None else f"{code}, branch {code.branch}" if code.branch else str(code)),
        ("whyidle", info.get("whyidle")),
        ("run", info.get("id")),
    ]
    return [(what, _short(value)) for what, value in rows if value not in (None, "")]


def settings_of(analysis: Analysis) -> Rows:
    """Collect (what, value): the loader's settings as they were seen, then all else in run.json."""
    rows: list[tuple[str, Any]] = []
    if (facts := analysis.facts) is not None:
        rows += [
            ("batch size", facts.batch_size),
            ("num_workers", facts.set_workers),
            ("prefetch_factor", facts.set_prefetch),
            ("persistent_workers", facts.persistent_workers),
            ("pin_memory", facts.pin_memory),
            ("iterable dataset", facts.iterable),
            ("batches handed over in any order", facts.out_of_order),
            ("workers start as new Python processes", facts.starts_python),
        ]
    for key, value in analysis.info.items():
        if key not in _ELSEWHERE and value not in (None, {}, []):
            rows += _flat(key, value)
    return [(what, _short(value)) for what, value in rows if value is not None]


def _flat(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _flat(f"{name}.{key}", inner)
    else:
        yield name, value


def _short(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    words = ", ".join(str(each) for each in value) if isinstance(value, list) else str(value)
    return words if len(words) <= MOST_CHARACTERS else f"{words[: MOST_CHARACTERS - 1]}…"


SCRIPTS = ("uPlot.iife.min.js", "unpack.js", "words.js", "colours.js", "timeline.js")
DRAWN_HERE = ("Where the time went", "What to change", "Lines of code", "Evidence", "Also found")
"""How titles of sections begin that this page draws itself."""


def page(analysis: Analysis, runs: Sequence[Run], cost: str | None = None) -> str:
    """Make the page. `runs`: those that were analysed. `cost`: what the run cost, in a line."""
    document, facts, job = run_document(analysis, cost), analysis.facts, analysis.job
    verdict, now, shares = analysis.verdict, rate_now(analysis), ranks_figures.shares(analysis)
    ranks = ranks_with_steps(analysis)
    # Of very many ranks the first, with the one that the figures beside it are of.
    first = ranks[:MOST_RANKS]
    chosen = [*first[:-1], job.lead] if job is not None and job.lead in ranks[MOST_RANKS:] else first
    over = timelines(analysis, runs, chosen)
    lead = next((each for each in over if job is not None and each.rank == job.lead), over[0] if over else None)
    leading = ranks_figures.leading(analysis, runs)
    stacks = None if leading is None or facts is None else stacks_of(*leading, facts.parts)
    others = [found for found in analysis.findings if found is not verdict]
    sections = page_sections(document.blocks)
    why: tuple[Sequence[Any], Sequence[str]] = (), ()
    if facts is not None:
        step_ms = facts.parts.wall_ns / facts.window.count / 1e6
        why = time_lines(time_parts(analysis, facts), step_ms), time_remarks(analysis, facts)
    return render(
        "run.html.j2",
        title=document.title,
        data=None if lead is None else data_of(over, lead.rank),
        scripts=(*(SCRIPTS if over else ()), *(["flame.js"] if stacks is not None else ())),
        styles=(*(("uPlot.min.css", "timeline.css") if over else ()), *(["flame.css"] if stacks is not None else ())),
        cautions=document.cautions,
        cost=cost,
        verdict=verdict,
        shares=shares,
        why=why[0],
        why_words=why[1],
        averaged=f", averaged over {len(job.ranks)} ranks" if job and analysis.ranks else "",
        changes=said_of(verdict.next, now),
        where=code_rows(verdict.where),
        others=[(found, said_of(found.next, now)) for found in others],
        stacks=stacks,
        tiles=list(_tiles(analysis, facts)),
        parts_shown=[] if lead is None else [part for part in (*PARTS, UNTOLD) if len(lead.parts.get(part, ()))],
        several=len(over) > 1,
        left_out_ranks=max(0, len(ranks) - len(over)),
        lead=None if lead is None else lead.rank,
        further=[each for each in sections if each.title and not each.title.startswith(DRAWN_HERE)],
        environment=environment_of(analysis),
        settings=settings_of(analysis),
    )


def _tiles(analysis: Analysis, facts: Facts | None) -> Iterator[tuple[str, Any, str]]:
    if facts is None:
        return
    step, shares = analysis.step_ms, ranks_figures.shares(analysis)
    if facts.window.count >= FEW_STEPS:
        fast, what_of = pace(analysis, facts)
        batch = f"batch {facts.batch_size}" if facts.batch_size else ""
        yield what_of, fast, batch if facts.samples_known else "samples unknown"
    what = {"cpu": "the processor computes", "emulated": "the emulated device computes"}
    yield "busy", share(shares.get("compute")), what.get(facts.device_kind, "the device computes, by its events")
    yield "waiting for data", share(shares.get("input")), "exposed wait"
    if facts.device_kind != "cpu":
        seen = ranks_figures.figure(analysis, "utilisation_pct")
        about = "computed as NVML does" if facts.device_kind == "emulated" else "NVML: any kernel"
        yield "utilisation", None if seen is None else f"{seen:.1f} %", about
    if step:
        yield "a step, median", f"{step['p50']:.1f} ms", f"95 % below {step['p95']:.1f} ms"
    if (job := analysis.job) is not None:
        yield "window", duration(job.wall_ns / 1e9), f"{job.steps} steps after the warm-up"
