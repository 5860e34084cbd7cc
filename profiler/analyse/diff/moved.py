"""What loader, device and host showed on both sides: figures beside a difference, without a claim."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..run.facts import Facts
from ..run.metrics import METRICS
from ..statistics import median_of_known
from .sides import Side

LEAST_MOVED = 0.15
"""Share of the larger of two sides' values by which a figure has to differ to have moved."""


@dataclass(frozen=True)
class MovedFigure:
    """A figure of both sides, the median over the runs of each. `None`: not measured."""

    name: str
    unit: str
    a: float | None
    b: float | None
    part: str
    """Part of the time that it belongs to."""
    moved: bool


def figures_of(a: Side, b: Side) -> tuple[MovedFigure, ...]:
    """The figures that were measured on either side."""
    found = []
    for name, unit, part, least, read in _FIGURES:
        of_a, of_b = _median(a, read), _median(b, read)
        if of_a is not None or of_b is not None:
            found.append(MovedFigure(name, unit, of_a, of_b, part, _has_moved(of_a, of_b, least)))
    return tuple(found)


def _has_moved(a: float | None, b: float | None, least: float) -> bool:
    if a is None or b is None:
        return False
    return abs(b - a) >= max(least, LEAST_MOVED * max(abs(a), abs(b)))


def _median(side: Side, read: Callable[[Facts], float | None]) -> float | None:
    return median_of_known(read(run.facts) for run in side.runs)


def _clock(facts: Facts) -> float | None:
    return None if facts.device_state is None else facts.device_state.clock_mhz


def _link(facts: Facts) -> float | None:
    link = None if facts.device_state is None else facts.device_state.link
    return None if link is None else 100 * link.share


def _gap(facts: Facts) -> float | None:
    if not facts.told_apart:
        return None
    return float(np.percentile(facts.parts.gaps_ns, 95)) / 1e6 if len(facts.parts.gaps_ns) else 0.0


def _gaps(facts: Facts) -> float | None:
    return 100.0 * len(facts.parts.gaps_ns) / facts.window.count if facts.told_apart else None


def _hidden(facts: Facts) -> float | None:
    return facts.parts.hidden_wait_ns / 1e6 / facts.window.count if facts.input_known else None


def _cold(facts: Facts) -> float | None:
    nbytes = facts.loader.storage_bytes_per_sample
    return None if nbytes is None else nbytes / 1e3


_Row = tuple[str, str, str, float, Callable[[Facts], float | None]]
"""(name, unit, part, the least change worth a line, how it is read)"""


def _of(metric: str, part: str, least: float, name: str | None = None, unit: str | None = None) -> _Row:
    """A registered metric; `name`, `unit`: said otherwise where figures of two sides stand beside each other."""
    found = METRICS[metric]
    return name or found.label, found.unit if unit is None else unit, part, least, found.of


_FIGURES: tuple[_Row, ...] = (
    _of("worker_busy_pct", "input", 5.0),
    _of("queue_ready_mean", "input", 0.25),
    _of("make_ms_per_sample", "input", 0.0, "making a sample"),
    _of("read_pct", "input", 3.0, "of which reading"),
    _of("prep_pct", "input", 3.0, "of which preparing"),
    _of("collate_pct", "input", 3.0, "of which collating"),
    _of("run_queue_pct", "input", 3.0, "makers waiting for a CPU"),
    ("read from storage", "kB/sample", "input", 0.5, _cold),
    ("hidden wait for data", "ms/step", "input", 0.1, _hidden),
    ("gaps of the device", "per 100 steps", "input", 5.0, _gaps),
    ("95 of 100 gaps are shorter than", "ms", "input", 0.1, _gap),
    _of("utilisation_pct", "compute", 3.0),
    _of("sm_active_pct", "compute", 3.0),
    ("clock while computing", "MHz", "compute", 20.0, _clock),
    ("link, of what it could carry", "%", "copy", 5.0, _link),
    _of("cpus_used", "host", 0.15, "CPUs the job kept busy", ""),
    _of("foreign_cpus", "host", 0.15, "CPUs that others kept busy", ""),
    _of("cpu_steal_pct", "host", 2.0, "steal"),
    _of("throttled_s", "host", 0.05, "stopped by a CPU quota"),
    _of("overhead_pct", "host", 0.5),
)
