"""A timeline as the page's scripts read it: within a budget whatever the length of the run, saying what is left out.

Times are ms since the begin of the job's first window, on one axis for the ranks of all hosts. Parts of the time are
sums per bin over the whole run, and span by span within the stretches kept in full.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ...analyse.run.stall_breakdown import PARTS, UNTOLD
from ...analyse.timeline.bins import Bins, bins_of
from ...analyse.timeline.detail import (
    DetailSpan,
    busy_of_workers,
    kept_batches,
    kept_spans,
    overlapping,
    stretches_of,
)
from ...analyse.timeline.lines import lines_of
from ...analyse.timeline.marks import marks_of
from ...analyse.timeline.timeline import Timeline
from ...record.files import plain
from ...record.reader import Records, measured
from ...record.schema import NOT_MEASURED
from ..export.axis import axis_of

TYPES = {"u8": "<u1", "u16": "<u2", "i32": "<i4", "f32": "<f4", "f64": "<f8"}
"""What `static/unpack.js` reads."""


def pack(values: npt.ArrayLike, type_: str) -> dict[str, str]:
    """As `{"type": …, "base64": …}`. NaN, of floats, is what was not measured."""
    bytes_ = np.asarray(values).astype(TYPES[type_]).tobytes()
    return {"type": type_, "base64": base64.b64encode(bytes_).decode("ascii")}


def unpack(packed: dict[str, str]) -> npt.NDArray[Any]:
    return np.frombuffer(base64.b64decode(packed["base64"]), dtype=TYPES[packed["type"]])


BINS = 24_000
BINS_A_STEP = 4
"""More say nothing of a short run that its spans do not say."""
SPANS = 42_000
"""Spans, steps and batches that are kept one by one."""
TELLING = 4_000
"""Further batches: those that held up the training, and those that took longest."""
POINTS = 5_000
"""Of a line."""
LEAST_BINS, LEAST_SPANS, LEAST_POINTS = 1_500, 2_000, 500
"""Of a rank of many."""
MOST_RANKS = 16
MOST_MARKS = 400
"""Of each kind."""
MOST_WORKERS = 64
MOST_DEVICES = 16
"""Of those whose samples a rank's recording holds: all of its host, where nothing said which it uses."""
WORKER_BINS = 2_000
SHARE = 65_535
"""What a share of 1 of a bin is stored as."""


def data_of(shown: Sequence[Timeline], names: Mapping[int, str], lead: int, left_out: int = 0) -> dict[str, Any]:
    """`names`: of slow samples' files and phases (`record.names`); `lead`: the rank to show first; `left_out`: how many
    ranks are not shown."""
    shifts = axis_of(shown).shifts
    origin = min(timeline.begin_ns + shift for timeline, shift in zip(shown, shifts, strict=True))
    among = len(shown)
    wall = shown[0].wall_ns
    return {
        "device": shown[0].facts.device_kind,
        "origin_ms": None if wall is None else (origin + wall) / 1e6,
        "lead": lead,
        "left_out_ranks": left_out,
        "ranks": [
            # Each on its own host's clock.
            _rank(timeline, origin - shift, among, names)
            for timeline, shift in zip(shown, shifts, strict=True)
        ],
    }


def shown_of(ranks: Sequence[int], lead: int | None) -> list[int]:
    """Of very many ranks the first, with the one that the figures beside it are of."""
    first = list(ranks[:MOST_RANKS])
    return first if lead not in ranks[MOST_RANKS:] or lead is None else [*first[:-1], lead]


def _rank(timeline: Timeline, origin: int, among: int, names: Mapping[int, str]) -> dict[str, Any]:
    stretches = stretches_of(timeline, max(LEAST_SPANS, SPANS // among))
    marks, left_out = marks_of(timeline, names, MOST_MARKS)
    lines = lines_of(timeline, max(LEAST_POINTS, POINTS // among))
    devices = sorted({number for line in lines if (number := line.device) is not None})
    first = int(timeline.steps["fetch_begin_ns"][0])
    return {
        "rank": timeline.rank,
        "host": plain(timeline.host),
        "begin": _ms(min(first, timeline.begin_ns), origin),
        "window": _ms(timeline.begin_ns, origin),
        "end": _ms(timeline.end_ns, origin),
        "bins": _bins(
            bins_of(timeline, max(LEAST_BINS, min(BINS // among, BINS_A_STEP * len(timeline.steps)))), origin
        ),
        "stretches": [[_ms(s.begin_ns, origin), _ms(s.end_ns, origin), s.why] for s in stretches],
        "spans": {
            part: {"begin": _at(spans[:, 0], origin), "length": _lengths(spans[:, 1] - spans[:, 0])}
            for part, spans in ((p, kept_spans(s, stretches)) for p, s in timeline.parts.items())
        },
        "steps": _steps(timeline.steps, stretches, origin),
        "lanes": _lanes(timeline, stretches, origin, max(LEAST_POINTS, TELLING // among), names),
        "lines": [
            {"name": line.name, "t": _at(line.t_ns, origin), "v": pack(line.values, "f32"), "measured": line.measured}
            for line in lines
            if line.device is None or line.device in devices[:MOST_DEVICES]
        ],
        "devices": devices[:MOST_DEVICES],
        "left_out_devices": len(devices[MOST_DEVICES:]),
        "marks": [[m.kind, _ms(m.begin_ns, origin), _ms(m.end_ns, origin), plain(m.name)] for m in marks],
        "left_out_marks": left_out,
    }


def _bins(bins: Bins, origin: int) -> dict[str, Any]:
    width = np.diff(bins.edges_ns)
    return {
        "count": len(width),
        "begin": _ms(int(bins.edges_ns[0]), origin),
        "width": float(bins.edges_ns[-1] - bins.edges_ns[0]) / len(width) / 1e6,
        "parts": {
            part: pack(np.rint(SHARE * bins.parts[part] / width), "u16")
            for part in (*PARTS, UNTOLD)
            if part in bins.parts
        },
        "steps": pack(bins.steps, "f32"),
        "samples": None if bins.samples is None else pack(bins.samples, "f32"),
        "gaps": pack(bins.gaps, "i32"),
        "longest_gap": pack(bins.longest_gap / 1e6, "f32"),
    }


def _steps(steps: Records, stretches: list[DetailSpan], origin: int) -> dict[str, Any]:
    begin, end = steps["fetch_begin_ns"], steps["step_end_ns"]
    kept = steps[overlapping(begin, end, stretches)]
    return {
        "number": pack(kept["step"], "i32"),
        "begin": _at(kept["fetch_begin_ns"], origin),
        "length": _lengths(kept["step_end_ns"] - kept["fetch_begin_ns"]),
    }


def _lanes(
    timeline: Timeline, stretches: list[DetailSpan], origin: int, further: int, names: Mapping[int, str]
) -> dict[str, Any] | None:
    """`None` where no maker said anything."""
    lanes = timeline.lanes
    if len(lanes.batches) == 0:
        return None
    place = kept_batches(timeline, stretches, further)
    kept = lanes.batches[place]
    busy = busy_of_workers(timeline, WORKER_BINS)
    workers = list(busy)[:MOST_WORKERS]
    files = sorted({int(n) for n in kept["slowest_name"]} & set(names))
    row = {number: n for n, number in enumerate(files)}
    begin = kept["begin_ns"]
    blocked = lanes.blocked_end_ns[place] - lanes.blocked_begin_ns[place]
    return {
        "workers": workers,
        "in_training": timeline.facts.made_in_training,
        "left_out_workers": len(busy) - len(workers),
        "batches": len(lanes.batches),
        "untimed": int(np.maximum(0, lanes.batches["skipped"]).sum()),
        "busy": {"count": WORKER_BINS, "share": pack(np.concatenate([np.rint(255 * busy[w]) for w in workers]), "u8")},
        "files": [plain(names[number]) for number in files],
        "worker": pack(np.searchsorted(np.array(list(busy)), kept["worker"]), "u16"),
        "begin": _at(begin, origin),
        "length": _lengths(kept["end_ns"] - begin),
        "read": _lengths(kept["read_ns"]),
        "step": _numbers(kept["step"]),
        "batch": _numbers(np.where(kept["batch"] == NOT_MEASURED, NOT_MEASURED, kept["batch"] & 0xFFFFFFFF)),
        "blocked": _lengths(blocked),
        "slowest": _lengths(kept["slowest_ns"]),
        "sample": pack(measured(kept["slowest_index"]), "f64"),
        "file": pack([row.get(int(n), -1) for n in kept["slowest_name"]], "i32"),
    }


def _ms(at_ns: int, origin: int) -> float:
    return (at_ns - origin) / 1e6


def _at(stamps: npt.NDArray[np.int64], origin: int) -> dict[str, str]:
    return pack((stamps - origin) / 1e6, "f64")


def _lengths(ns: npt.NDArray[np.int64]) -> dict[str, str]:
    return pack(measured(ns) / 1e6, "f32")


def _numbers(values: npt.NDArray[np.int64]) -> dict[str, str]:
    """-1: not known."""
    return pack(np.where(values == NOT_MEASURED, -1, values), "i32")
