"""What was measured again and again, as lines that have few points and still show every peak."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from tsdownsample import MinMaxLTTBDownsampler

from ...record.reader import Records, measured
from .timeline import Timeline

Numbers = npt.NDArray[np.float64]
Stamps = npt.NDArray[np.int64]

BREAK = 8
"""A stretch without measurements so many times as long as usual breaks a line."""


@dataclass(frozen=True)
class TimelineLine:
    name: str
    """What it shows: `step`, `ready`, `capacity`, `cpus`, `budget`, `machine` (CPUs in use, by whomever); of device N
    `utilisation:N`, `sm:N`, `memory:N`, `power:N`."""
    t_ns: Stamps
    values: Numbers
    """NaN where the line is broken: nothing was measured there."""
    measured: int
    """Values behind the points."""

    @property
    def device(self) -> int | None:
        """Number of the device that it is of; `None` where it is of none."""
        _, of, number = self.name.partition(":")
        return int(number) if of else None


def lines_of(timeline: Timeline, points: int) -> list[TimelineLine]:
    """Lines of at most about `points` points each; those of which nothing was measured are left out."""
    steps = timeline.facts.window.steps
    ends = steps["step_end_ns"]
    found = [
        _line("step", ends, (ends - steps["fetch_begin_ns"]) / 1e6, points),
        _line("ready", steps["fetch_begin_ns"], measured(steps["queue_ready"]), points),
        _line("capacity", steps["fetch_begin_ns"], measured(steps["queue_capacity"]), points),
    ]
    device, host = _within(timeline, timeline.device), _within(timeline, timeline.host_samples)
    for number in np.unique(device["device"]):
        found += _of_device(int(number), device[device["device"] == number], points)
    cpus = timeline.facts.machine_cpus or np.nan
    found += [
        _line("cpus", *_rate(host["t_ns"], measured(host["tree_cpu_ns"])), points),
        _line("budget", host["t_ns"], measured(host["cpus"]) / 1000, points),
        _line("machine", host["t_ns"], measured(host["machine_busy_pct"]) / 100 * cpus, points),
    ]
    return [line for line in found if line.measured]


def utilisation_of(timeline: Timeline, points: int) -> Iterator[TimelineLine]:
    """Of these lines, those of devices' utilisation."""
    device = _within(timeline, timeline.device)
    for number in np.unique(device["device"]).tolist():
        line = _utilisation(number, device[device["device"] == number], points)
        if line.measured:
            yield line


def downsampled(t_ns: Stamps, values: Numbers, points: int) -> tuple[Stamps, Numbers]:
    """At most `points` of the known values, peaks among them (MinMaxLTTB), and NaN where the line breaks."""
    known = ~np.isnan(values)
    t_ns, values = np.ascontiguousarray(t_ns[known]), np.ascontiguousarray(values[known])
    if len(t_ns) < 3:
        return t_ns, values
    apart = np.diff(t_ns)
    broken = apart > BREAK * np.median(apart)
    kept = np.arange(len(t_ns))
    if len(t_ns) > points:
        downsampler = MinMaxLTTBDownsampler()  # type: ignore[no-untyped-call]
        kept = downsampler.downsample(t_ns, values, n_out=points).astype(np.int64)
    breaks = np.concatenate(([0], np.cumsum(broken)))[kept]
    after = np.flatnonzero(np.diff(breaks) > 0) + 1
    t, v = t_ns[kept], values[kept]
    return np.insert(t, after, t[after - 1] + 1), np.insert(v, after, np.nan)


def _within(timeline: Timeline, records: Records) -> Records:
    inside: Records = records[(records["t_ns"] >= timeline.begin_ns) & (records["t_ns"] <= timeline.end_ns)]
    return inside


def _of_device(number: int, records: Records, points: int) -> Iterator[TimelineLine]:
    t_ns = records["t_ns"]
    yield _utilisation(number, records, points)
    yield _line(f"sm:{number}", t_ns, measured(records["sm_active_pct"]), points)
    yield _line(f"memory:{number}", t_ns, measured(records["memory_used_bytes"]) / 1e9, points)
    yield _line(f"power:{number}", t_ns, measured(records["power_mw"]) / 1e3, points)


def _utilisation(number: int, records: Records, points: int) -> TimelineLine:
    return _line(f"utilisation:{number}", records["t_ns"], measured(records["utilisation_pct"]), points)


def _rate(t_ns: Stamps, counter: Numbers) -> tuple[Stamps, Numbers]:
    """How fast a counter rises between successive readings, at the later one; a counter that falls began anew."""
    known = ~np.isnan(counter)
    t_ns, counter = t_ns[known], counter[known]
    apart = np.diff(t_ns)
    rise = np.diff(counter)
    usable = (apart > 0) & (rise >= 0)
    return t_ns[1:], np.where(usable, rise / np.maximum(apart, 1), np.nan)


def _line(name: str, t_ns: Stamps, values: Numbers, points: int) -> TimelineLine:
    known = int((~np.isnan(values)).sum())
    return TimelineLine(name, *downsampled(t_ns, values, points), known)
