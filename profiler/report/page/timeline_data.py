"""A timeline as the page's scripts draw it, within a budget whatever the length of the run.

Times are ms since the begin of the job's first window, on one axis for the ranks of all hosts. Parts of the time are
sums per bin; step by step they are in the trace (`report/export/trace`).
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ...analyse.run.stall_breakdown import PARTS, UNTOLD
from ...analyse.timeline.bins import bins_of
from ...analyse.timeline.lines import lines_of
from ...analyse.timeline.timeline import Timeline
from ...record.files import plain
from ..export.axis import axis_of

TYPES = {"u16": "<u2", "f32": "<f4", "f64": "<f8"}
"""What `static/unpack.js` reads."""
BINS, LEAST_BINS = 4_000, 500
"""Of all ranks together, and of a rank of many at least."""
BINS_A_STEP = 4
"""More say nothing of a short run."""
POINTS, LEAST_POINTS = 5_000, 500
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


def unpack(packed: dict[str, str]) -> npt.NDArray[Any]:
    return np.frombuffer(base64.b64decode(packed["base64"]), dtype=TYPES[packed["type"]])


def data_of(shown: Sequence[Timeline], lead: int) -> dict[str, Any]:
    """`lead`: the rank to show first."""
    shifts = axis_of(shown).shifts
    origin = min(timeline.begin_ns + shift for timeline, shift in zip(shown, shifts, strict=True))
    among = len(shown)
    return {
        "device": shown[0].facts.device_kind,
        "lead": lead,
        "ranks": [
            # Each on its own host's clock.
            _rank(timeline, origin - shift, among)
            for timeline, shift in zip(shown, shifts, strict=True)
        ],
    }


def shown_of(ranks: Sequence[int], lead: int | None) -> list[int]:
    """Of very many ranks the first, with the one that the figures beside it are of."""
    first = list(ranks[:MOST_RANKS])
    return first if lead not in ranks[MOST_RANKS:] or lead is None else [*first[:-1], lead]


def _rank(timeline: Timeline, origin: int, among: int) -> dict[str, Any]:
    lines = lines_of(timeline, max(LEAST_POINTS, POINTS // among))
    devices = sorted({number for line in lines if (number := line.device) is not None})
    bins = bins_of(timeline, max(LEAST_BINS, min(BINS // among, BINS_A_STEP * len(timeline.steps))))
    width = np.diff(bins.edges_ns)
    begin = min(int(timeline.steps["fetch_begin_ns"][0]), timeline.begin_ns)
    return {
        "rank": timeline.rank,
        "host": plain(timeline.host),
        "begin": (begin - origin) / 1e6,
        "end": (timeline.end_ns - origin) / 1e6,
        "bins": {
            "count": len(width),
            "begin": (int(bins.edges_ns[0]) - origin) / 1e6,
            "width": float(bins.edges_ns[-1] - bins.edges_ns[0]) / len(width) / 1e6,
            "parts": {
                part: pack(np.rint(SHARE * bins.parts[part] / width), "u16")
                for part in (*PARTS, UNTOLD)
                if part in bins.parts
            },
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
