"""Where time went, summed up in bins of equal length: an overview that loses no time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...record.schema import NOT_MEASURED
from ..intervals import covered
from ..run.window import Window
from .timeline import Timeline

Amounts = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Bins:
    """All arrays have an element for each bin; times in ns."""

    edges_ns: Amounts
    """Where bins begin, and where the last one ends: one more than there are bins."""
    parts: dict[str, Amounts]
    """Part → its time. Over all bins it sums to the part's spans, to the nanosecond."""
    unseen: Amounts
    """Time of steps that nobody looked at, which no part has."""
    steps: Numbers
    """Steps that ran, looked at or not; of a step that lies in several bins each has its share."""
    samples: Numbers | None
    """`None` where the samples of most steps are not known."""


def bins_of(timeline: Timeline, count: int) -> Bins:
    """`count` bins over the window, or one for each nanosecond of a shorter one."""
    facts, window = timeline.facts, timeline.facts.window
    edges, parts = parts_of(timeline, count)
    unseen = np.diff(edges) - sum(parts.values(), np.zeros(len(edges) - 1, dtype=np.int64))
    steps, samples = _pace(window, edges)
    return Bins(edges, parts, unseen, steps, samples if facts.samples_known else None)


def parts_of(timeline: Timeline, count: int) -> tuple[Amounts, dict[str, Amounts]]:
    """Edges and parts of such bins alone."""
    window = timeline.facts.window
    count = max(1, min(count, window.wall_ns))
    edges = window.begin_ns + np.array([window.wall_ns * n // count for n in range(count + 1)], dtype=np.int64)
    return edges, {part: covered(spans, edges[:-1], edges[1:]) for part, spans in timeline.parts.items()}


def _pace(window: Window, edges: Amounts) -> tuple[Numbers, Numbers]:
    """Steps and samples in each bin: of the device's pace where it stamped the steps, else of the host's.

    A step's share of a bin is its share of the time since the step before it. Steps that have no stamps, or that
    nobody looked at, ran evenly until the next one that has.
    """
    steps = window.steps
    counted, samples = 1 + steps["skipped"], steps["skipped_samples"] + _known(steps["samples"])
    counted[:1], samples[:1] = 1, _known(steps["samples"][:1])
    stamped = steps["device_end_ns"] != NOT_MEASURED
    kept = np.flatnonzero(stamped) if stamped.any() else np.arange(len(steps))
    ends = (steps["device_end_ns"] if stamped.any() else steps["step_end_ns"])[kept]
    begins = steps["fetch_begin_ns"][kept]
    left_out = (steps["skipped"][kept] > 0) | (np.diff(kept, prepend=-1) > 1)
    # Those left out ran until this one began.
    begins = np.where(left_out & stamped[kept], steps["device_begin_ns"][kept], begins)
    at = np.concatenate((np.stack((begins, ends), axis=1).ravel(), [window.end_ns]))
    del begins, ends, left_out
    np.maximum.accumulate(np.clip(at, window.begin_ns, window.end_ns, out=at), out=at)
    # Only the instants around the edges matter. Of those that several steps share, the last has the count.
    before = np.maximum(0, np.searchsorted(at, edges, side="right") - 1)
    after_it = np.minimum(np.concatenate((before, before + 1)), len(at) - 1)
    told = np.unique(np.searchsorted(at, at[after_it], side="right") - 1)
    times = at[told].astype(np.float64)

    def until(each: Amounts, own: Amounts, after: int) -> Numbers:
        by_end = each.cumsum()
        step = kept[np.minimum(told // 2, len(kept) - 1)]
        passed = np.where(told % 2, by_end[step], by_end[step] - own[step])
        passed[told == 2 * len(kept)] = by_end[-1] + after
        by_edge = np.interp(edges, times, passed.astype(np.float64))
        # Of a device behind its host, the first steps are over for the host when the window begins.
        by_edge[0] = 0.0
        return np.diff(by_edge)

    return (
        until(counted, np.ones(len(steps), dtype=np.int64), window.skipped_after),
        until(samples, _known(steps["samples"]), window.skipped_samples_after),
    )


def _known(samples: Amounts) -> Amounts:
    return np.where(samples == NOT_MEASURED, 0, samples)
