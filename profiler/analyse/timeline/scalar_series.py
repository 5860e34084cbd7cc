"""A run as it went, in stretches of equal length: for loggers that were not there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...record.reader import measured
from ..intervals import covered
from ..run.stall_breakdown import PARTS
from .timeline import Timeline


@dataclass(frozen=True)
class SeriesStretch:
    """Some seconds of a run. `None`: not measured."""

    step: int
    """The last step that began in it."""
    shares: dict[str, float]
    """Of the time that was looked at in it, by part; empty where none was."""
    samples_per_s: float | None
    utilisation_pct: float | None
    queue_ready: float | None


def stretches(line: Timeline, seconds: float) -> list[SeriesStretch]:
    """The window of a run in stretches of so many seconds, the last of which may be shorter; those without a step are
    left out."""
    length = max(1, round(seconds * 1e9))
    begins = np.arange(line.begin_ns, line.end_ns, length, dtype=np.int64)
    ends = np.minimum(begins + length, line.end_ns)
    parts = {name: covered(line.parts[name], begins, ends) for name in PARTS if name in line.parts}
    known = sum(parts.values(), np.zeros(len(begins), dtype=np.int64))
    steps = line.steps[line.steps["fetch_begin_ns"] >= line.begin_ns]
    place = (steps["fetch_begin_ns"] - line.begin_ns) // length
    counts = np.bincount(place, weights=steps["samples"] + steps["skipped_samples"], minlength=len(begins))
    ready = measured(steps["queue_ready"])
    looks = (line.device["t_ns"] - line.begin_ns) // length
    used = measured(line.device["utilisation_pct"])
    found = []
    for n in range(len(begins)):
        here = place == n
        if not here.any():
            continue
        wall_s = (ends[n] - begins[n]) / 1e9
        found.append(
            SeriesStretch(
                step=int(steps["step"][here].max()),
                shares={name: float(time[n] / known[n]) for name, time in parts.items()} if known[n] else {},
                samples_per_s=float(counts[n] / wall_s) if line.facts.samples_known else None,
                utilisation_pct=_mean(used[looks == n]),
                queue_ready=_mean(ready[here]),
            )
        )
    return found


def _mean(values: np.ndarray) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None
