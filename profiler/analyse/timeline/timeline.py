"""One training process over time: its parts, its steps, its makers of batches, and what the sampler saw.

It is drawn in bins of equal length, which lose no time; as lines of few points, which still show every peak; and told
in stretches of some seconds to loggers that were not there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import numpy.typing as npt

from ...record.reader import Records, measured
from ...record.run import Run, Writer
from ...record.schema import BATCH, DEVICE, EVENT, HOST, NAN, NOT_MEASURED, PAUSE
from ..intervals import Intervals, complement, covered, union_of
from ..ranks.membership import ranks_of, wall_ns
from ..run.analysis import Analysis
from ..run.facts import Facts
from ..run.loader_stats import first_later_end, joined, of_training
from ..run.stall_breakdown import PARTS, UNTOLD
from ..run.window import Window, mean_of

Stamps = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.float64]

OF_DEVICE = {
    "utilisation": ("utilisation_pct", 1.0),
    "sm": ("sm_active_pct", 1.0),
    "memory": ("memory_used_bytes", 1e9),
    "power": ("power_mw", 1e3),
}
"""Name of a device's line → (field of its records, how many of the field's unit are one of the line's)."""
BREAK = 8
"""A stretch without measurements so many times as long as usual breaks a line."""


@dataclass(frozen=True)
class Timeline:
    """All stamps are CLOCK_MONOTONIC ns."""

    rank: int
    host: str
    facts: Facts
    parts: dict[str, Intervals]
    """See `part_spans`."""
    batches: Records
    """BATCH records of the loaders that train, in the order they were begun, each with the step that consumed it
    (`loader_stats.of_training`)."""
    blocked_ns: Stamps
    """Head of line: since when the training waited for each batch while a later one lay finished; the batch's end where
    it never did."""
    pauses: Records
    events: Records
    device: Records
    """All that the sampler saw, of all devices; it may have begun before the window and ended after it."""
    host_samples: Records
    wall_ns: int | None
    """Unix time minus CLOCK_MONOTONIC, ns; `None`: not known."""

    @property
    def begin_ns(self) -> int:
        return self.facts.window.begin_ns

    @property
    def end_ns(self) -> int:
        return self.facts.window.end_ns

    @property
    def steps(self) -> Records:
        """All steps that the hooks looked at, the warm-up included."""
        return self.facts.window.all_steps


def ranks_with_steps(analysis: Analysis) -> list[int]:
    """Of several ranks those that ran steps, by number; empty of a single one."""
    return [part.rank for part in analysis.ranks if part.analysis.facts is not None]


def timelines(analysis: Analysis, runs: Sequence[Run], only: Collection[int] | None = None) -> list[Timeline]:
    """One for each rank that ran steps, by number. `runs`: those that were analysed; `only`: of several ranks those
    that are wanted."""
    if not analysis.ranks:
        run, facts, writer = runs[0], analysis.facts, runs[0].leading_writer()
        if facts is None or writer is None:
            return []
        return [_timeline(run, writer, facts, 0, "", wall_ns(run.info.get("clock")))]
    wanted = {part.rank: part.analysis.facts for part in analysis.ranks if only is None or part.rank in only}
    return [
        _timeline(rank.run, rank.writer, facts, rank.rank, rank.host, rank.wall_ns)
        for rank in ranks_of(runs)
        if (facts := wanted.get(rank.rank)) is not None
    ]


def _timeline(run: Run, writer: Writer, facts: Facts, rank: int, host: str, wall: int | None) -> Timeline:
    steps, device, host_samples = facts.window.all_steps, run.records(DEVICE), run.records(HOST)
    batches = of_training(run.records(BATCH, writer), steps)
    batches = batches[np.argsort(batches["begin_ns"], kind="stable")]
    place, batch = joined(steps, batches)
    blocked_ns = batches["end_ns"].copy()
    held = np.maximum(steps["fetch_begin_ns"][place], first_later_end(batches)[batch])
    blocked_ns[batch] = np.minimum(held, blocked_ns[batch])
    return Timeline(
        rank=rank,
        host=host,
        facts=facts,
        parts=part_spans(facts),
        batches=batches,
        blocked_ns=blocked_ns,
        pauses=run.records(PAUSE, writer),
        events=run.records(EVENT, writer),
        device=device[np.argsort(device["t_ns"], kind="stable")],
        host_samples=host_samples[np.argsort(host_samples["t_ns"], kind="stable")],
        wall_ns=wall,
    )


def part_spans(facts: Facts) -> dict[str, Intervals]:
    """Part → the stretches of the window that are blamed on it; they overlap nowhere.

    Steps that nobody looked at are in none of them: of them only sums are known. Where computing is not told from
    waiting for data, what is neither copy, sync nor boundary is `UNTOLD`.
    """
    parts = facts.parts
    if facts.told_apart:
        return {part: spans for part, spans in parts.when.items() if part != "input" or facts.input_known}
    known = {part: parts.when[part] for part in ("copy", "sync", "boundary")}
    told = reduce(union_of, known.values())
    return known | {UNTOLD: complement(told, facts.window.begin_ns, facts.window.end_ns)}


@dataclass(frozen=True)
class Bins:
    """All arrays have an element for each bin; times in ns."""

    edges_ns: Stamps
    """Where bins begin, and where the last one ends: one more than there are bins."""
    parts: dict[str, Stamps]
    """Part → its time. Over all bins it sums to the part's spans, to the nanosecond; time of steps that nobody looked
    at is in none."""
    steps: Numbers
    """Steps that ran, looked at or not; of a step that lies in several bins each has its share."""
    samples: Numbers | None
    """`None` where the samples of most steps are not known."""


def bins_of(timeline: Timeline, count: int) -> Bins:
    """`count` bins over the window, or one for each nanosecond of a shorter one."""
    window = timeline.facts.window
    count = max(1, min(count, window.wall_ns))
    edges = window.begin_ns + np.array([window.wall_ns * n // count for n in range(count + 1)], dtype=np.int64)
    parts = {part: covered(spans, edges[:-1], edges[1:]) for part, spans in timeline.parts.items()}
    steps, samples = _pace(window, edges)
    return Bins(edges, parts, steps, samples if timeline.facts.samples_known else None)


def _pace(window: Window, edges: Stamps) -> tuple[Numbers, Numbers]:
    """Steps and samples in each bin: of the device's pace where it stamped the steps, else of the host's.

    A step's share of a bin is its share of the time since the step before it. Steps that have no stamps, or that
    nobody looked at, ran evenly until the next one that has.
    """
    steps = window.steps
    own = np.where(steps["samples"] == NOT_MEASURED, 0, steps["samples"])
    counted, samples = 1 + steps["skipped"], steps["skipped_samples"] + own
    counted[:1], samples[:1] = 1, own[:1]
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

    def until(each: Stamps, last: Stamps | int, after: int) -> Numbers:
        by_end = each.cumsum()
        step = kept[np.minimum(told // 2, len(kept) - 1)]
        passed = np.where(told % 2, by_end[step], by_end[step] - (last if isinstance(last, int) else last[step]))
        passed[told == 2 * len(kept)] = by_end[-1] + after
        by_edge = np.interp(edges, times, passed.astype(np.float64))
        # Of a device behind its host, the first steps are over for the host when the window begins.
        by_edge[0] = 0.0
        return np.diff(by_edge)

    return (
        until(counted, 1, window.skipped_after),
        until(samples, own, window.skipped_samples_after),
    )


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
    host, device = _within(timeline, timeline.host_samples), _within(timeline, timeline.device)
    for number in np.unique(device["device"]).tolist():
        looks = device[device["device"] == number]
        for name, (field, unit) in OF_DEVICE.items():
            found.append(_line(f"{name}:{number}", looks["t_ns"], measured(looks[field]) / unit, points))
    cpus = timeline.facts.machine_cpus or np.nan
    found += [
        _line("cpus", *rate(host["t_ns"], measured(host["tree_cpu_ns"])), points),
        _line("budget", host["t_ns"], measured(host["cpus"]) / 1000, points),
        _line("machine", host["t_ns"], measured(host["machine_busy_pct"]) / 100 * cpus, points),
    ]
    return [line for line in found if line.measured]


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
        from tsdownsample import MinMaxLTTBDownsampler

        downsampler = MinMaxLTTBDownsampler()  # type: ignore[no-untyped-call]
        kept = downsampler.downsample(t_ns, values, n_out=points).astype(np.int64)
    breaks = np.concatenate(([0], np.cumsum(broken)))[kept]
    after = np.flatnonzero(np.diff(breaks) > 0) + 1
    t, v = t_ns[kept], values[kept]
    return np.insert(t, after, t[after - 1] + 1), np.insert(v, after, np.nan)


def _within(timeline: Timeline, records: Records) -> Records:
    inside: Records = records[(records["t_ns"] >= timeline.begin_ns) & (records["t_ns"] <= timeline.end_ns)]
    return inside


def rate(t_ns: Stamps, counter: Numbers) -> tuple[Stamps, Numbers]:
    """Return how fast a counter rises between successive readings, at the later one; one that falls began anew."""
    known = ~np.isnan(counter)
    t_ns, counter = t_ns[known], counter[known]
    apart = np.diff(t_ns)
    rise = np.diff(counter)
    usable = (apart > 0) & (rise >= 0)
    return t_ns[1:], np.where(usable, rise / np.maximum(apart, 1), np.nan)


def _line(name: str, t_ns: Stamps, values: Numbers, points: int) -> TimelineLine:
    known = int((~np.isnan(values)).sum())
    return TimelineLine(name, *downsampled(t_ns, values, points), known)


def stretches(line: Timeline, seconds: float) -> Iterator[tuple[int, dict[str, float], dict[str, float]]]:
    """Go through the window of a run in stretches of so many seconds, the last of which may be shorter.

    Yields (the last step that began in it; shares of the time that was looked at in it, by part, empty where none was;
    figures by name, NaN where not measured). Stretches without a step are left out.
    """
    length = max(1, round(seconds * 1e9))
    edges = np.append(np.arange(line.begin_ns, line.end_ns, length, dtype=np.int64), line.end_ns)
    parts = {name: covered(spans, edges[:-1], edges[1:]) for name, spans in line.parts.items() if name in PARTS}
    known = sum(parts.values(), np.zeros(len(edges) - 1, dtype=np.int64))
    at_ns = line.steps["fetch_begin_ns"]
    steps = line.steps[(at_ns >= line.begin_ns) & (at_ns < line.end_ns)]
    begun, looked = ((t_ns - line.begin_ns) // length for t_ns in (steps["fetch_begin_ns"], line.device["t_ns"]))
    for n in np.unique(begun).tolist():
        here, looks = steps[begun == n], line.device[looked == n]
        samples = float((here["samples"] + here["skipped_samples"]).sum())
        figures = {
            "samples_per_s": samples / ((edges[n + 1] - edges[n]) / 1e9) if line.facts.samples_known else NAN,
            "utilisation_pct": mean_of(looks, "utilisation_pct"),
            "queue_ready": mean_of(here, "queue_ready"),
        }
        shares = {name: float(time[n] / known[n]) for name, time in parts.items()} if known[n] else {}
        yield int(here["step"].max()), shares, figures
