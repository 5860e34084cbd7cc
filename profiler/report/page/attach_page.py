"""A recording from outside as a page: the text report's words, stacks as icicles, the sampler's figures over time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ...analyse.attached.attached import Attached
from ...analyse.causes.finding import Finding
from ...analyse.timeline.timeline import Numbers, Stamps, downsampled, rate
from ...analyse.where.looks import process_looks
from ...record.reader import measured
from ...record.run import Run
from ...record.schema import DEVICE, HOST
from ..document import LINES, code_rows
from ..documents.attached import further, headline, told_shares, top_places, who, why
from ..render import page_sections
from .flame import Stacks, drawn
from .frame import render

WIDE, HIGH = 1000, 100
"""Units of a curve."""
MOST_VALUES = 400
"""Points of a curve."""


def page(run: Run, seen: Attached, verdict: Finding, findings: tuple[Finding, ...]) -> str:
    """The whole page."""
    stacks = _stacks(seen)
    return render(
        "attach.html.j2",
        title=headline(seen),
        styles=("table.css", *(["flame.css"] if stacks is not None else ())),
        scripts=("flame.js",) if stacks is not None else (),
        verdict=verdict,
        why=[
            (why(seen, each), told_shares(seen, each), top_places(each), each.looks)
            for each in seen.trainers
            if each.shares
        ],
        where=code_rows(verdict.where),
        sections=[each for each in page_sections(further(seen, verdict, findings)) if each.title != LINES],
        series=list(series_of(run)),
        stacks=stacks,
        whose="" if seen.leading is None or len(seen.trainers) < 2 else f" of {who(seen.leading)}",
    )


def _stacks(seen: Attached) -> Stacks | None:
    """Draw those of the process that the verdict is about."""
    trainer, looks = seen.leading, seen.looks
    if trainer is None or looks is None or not len(looks):
        return None
    mine = process_looks(looks, trainer.pid, trainer.by.tid)
    stood_in = trainer.tally.stacks
    parts = [(what, mine.training.where(stood.__contains__)) for what, stood in stood_in.items()]
    before = mine.training.where(lambda stack: not any(stack in stood for stood in stood_in.values()))
    parts = sorted(parts, key=lambda part: -len(part[1]))
    return drawn(mine, [("before training was first seen", before), *parts])


class Series(NamedTuple):
    """A figure over time."""

    name: str
    unit: str
    seconds: float
    """From the first look to the last."""
    mean: float
    highest: float
    path: str
    """An SVG path; what was not measured is a gap."""


COUNTERS = (
    ("tree_cpu_ns", "CPUs this job uses", "CPUs", 1e9),
    ("run_queue_ns", "threads waiting for a CPU", "threads", 1e9),
    ("read_storage_bytes", "read from storage", "MB/s", 1e6),
)
"""Field of a sample of the host whose sum rises, its rate's name and unit, and what a second's rise is divided by."""
GAUGES = (("utilisation_pct", "utilisation (NVML)", "%"), ("sm_active_pct", "SM active", "%"))
"""The same of a device; no sums."""


def series_of(run: Run) -> Iterator[Series]:
    """Give what the sampler saw over time, where it was measured more than once."""
    host = run.records(HOST)
    host = host[np.argsort(host["t_ns"], kind="stable")]
    for field, name, unit, scale in COUNTERS:
        t_ns, a_ns = rate(host["t_ns"], measured(host[field]))
        yield from _series(name, unit, t_ns, 1e9 * a_ns / scale)
    device = run.records(DEVICE)
    device = device[np.argsort(device["t_ns"], kind="stable")]
    for number in np.unique(device["device"]).tolist():
        own = device[device["device"] == number]
        for field, name, unit in GAUGES:
            yield from _series(f"GPU {number}: {name}", unit, own["t_ns"], measured(own[field]))


def _series(name: str, unit: str, t_ns: Stamps, values: Numbers) -> Iterator[Series]:
    if np.isfinite(values).sum() < 2:
        return
    at, drawn = downsampled(t_ns, values, MOST_VALUES)
    seconds, highest = (int(t_ns[-1]) - int(t_ns[0])) / 1e9, float(np.nanmax(values))
    top = 100.0 if unit == "%" else highest or 1.0
    xs, ys = WIDE * (at - t_ns[0]) / 1e9 / (seconds or 1.0), HIGH - HIGH * np.minimum(drawn, top) / top
    words, pen = [], "M"
    for x, y in zip(xs.tolist(), ys.tolist(), strict=True):
        known = math.isfinite(y)
        # A single value between two gaps shows as a short stroke.
        words += [f"{pen}{x:.1f} {y:.1f}{'h1' * (pen == 'M')}"] if known else []
        pen = "L" if known else "M"
    yield Series(name, unit, seconds, float(np.nanmean(values)), highest, "".join(words))
