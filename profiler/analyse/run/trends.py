"""How the parts of a step change as a run goes on, and whether one grows.

Steps are put together in blocks of one length, so that work at every n-th step is in each of them alike. A part grows
where its blocks rise all along (Theil and Sen's slope is surely positive, and Kendall's tau is high) and nothing that
is known explains it: larger batches, epochs of different kinds, other programs' CPU time, clocks that fell, a queue of
finished batches that ran empty. What it costs is the time beyond the level of the run's beginning.

First steps of epochs and those with new shapes are left out: their lengths are of another kind.

What else changed while a part of the steps rose: batches, other programs, clocks, what lay ready, epochs. Each is
compared between the first fifth of the run's steps and the last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from math import isnan, nan
from typing import TYPE_CHECKING

import numpy as np

from ...record.reader import Records
from ...record.schema import StepFlag
from ..intervals import covered, total
from ..shares import MOSTLY, NEARLY_ALL
from ..statistics import Estimate, Values, theil_sen
from .resource_usage import rate_of
from .stall_breakdown import TERMS, TOTAL, UNTOLD
from .window import Stamps, elements_of, flagged, mean_of, spans_of

if TYPE_CHECKING:
    from .facts import Facts


LARGER = 1.02
"""Elements of the last batches over those of the first, from which batches got larger."""
MORE_FOREIGN_CPUS = 0.5
"""CPUs that other programs take more than at first, from which they may slow steps down."""
NEARLY_FULL_PCT = 80.0
"""CPU time of the machine in use, in percent, below which other programs leave CPUs over."""
MORE_STEAL_PCT = 10.0
"""Points by which the hypervisor takes more of the machine's time than at the beginning."""
SLOWER_CLOCK = 0.97
"""The device's clock over that of the beginning, below which it is why computing takes longer."""
MAKING_GROWS = 1.05
"""Making a batch over what it took at the beginning, up to which it does not grow."""
NEAR_AN_EPOCH = 0.03
"""Share of the run's steps by which a jump of epochs may lie beside an epoch's begin."""


LEAST_STEPS = 100
"""Steps that were looked at, from which a trend is told at all."""
MOST_BLOCKS = 20
LEAST_BLOCKS = 8
LEAST_STRETCHES = 8
"""Stretches outside the steps, from which their lengths have a trend."""
RISES_ALL_ALONG = 0.6
"""Kendall's tau of blocks that rise all along, at least. Two flat levels have 0.5."""
LEAST_JUMP = 0.3
"""How much longer a step is after a jump, at least, as a share of what it was before."""
LEAST_SIDE = 0.2
"""Share of the blocks on each side of a jump, at least."""
CARRIED = 0.3
"""Share of the growth within epochs, and from each to the next: else it is order or kind."""
MANY_EPOCHS = 8
"""From so many on, epochs that rise one after the other are no different kinds."""
FLAT, FALLS, GROWS, JUMPS, RISES = "flat", "falls", "grows", "jumps", "rises"
"""What a part does. `rises`: by what something else explains, or not surely."""


@dataclass(frozen=True)
class Trend:
    """One part of the steps over the run."""

    part: str
    """Of the parts of a step, `boundary`, `total`, or `untold` where parts are not told apart."""
    first_ms: float
    """Mean of a step (`boundary`: of a stretch outside) over the first fifth of the run."""
    last_ms: float
    """The same over the last fifth."""
    slope: Estimate
    """ms that a step grows in a thousand steps, with its 95 % interval."""
    shape: str
    since: int | None = None
    """The step from which on it rises, or at which it jumps; `None` where it does neither."""
    grown: Estimate | None = None
    """Time beyond the level of the run's beginning, ns; `None`: no growth by itself."""
    why: str = ""
    """Of one that rises: what explains it."""


@dataclass(frozen=True)
class _Series:
    """One value for each of the steps that count, ns, in blocks of one length."""

    numbers: Values
    """Of the steps."""
    values: Values
    block: int
    begin: float
    """Number of the window's first step."""

    @cached_property
    def blocks(self) -> Values:
        return np.asarray(self.values.reshape(-1, self.block).mean(axis=1))

    @cached_property
    def times(self) -> Values:
        return np.asarray(self.numbers.reshape(-1, self.block).mean(axis=1))


@dataclass(frozen=True)
class _Change:
    """How blocks rise: from `at` on, from `level`, at a slope or in a jump."""

    at: int
    level: float
    jump: bool
    misses: float
    """Sum of the squares that it leaves."""


class _Surroundings:
    """What is known of a process's run beside its steps, at its beginning and its end. Figures that are not are NaN."""

    def __init__(self, facts: Facts, batches: Records, device: Records, host: Records, kept: Stamps) -> None:
        """`kept`: places of the steps that count, among those of the window."""
        self.facts, self.kept = facts, kept
        self._host = host[np.argsort(host["t_ns"], kind="stable")]
        fifth = max(1, len(kept) // 5)
        ends = [facts.window.steps[part] for part in (kept[:fifth], kept[-fifth:])]
        self._when = [(int(part["fetch_begin_ns"][0]), int(part["step_end_ns"][-1])) for part in ends]
        busy = self._both(mean_of, "machine_busy_pct")
        mine = self._both(rate_of, "tree_cpu_ns")
        used = [pct / 100 * (facts.machine_cpus or nan) - own for pct, own in zip(busy, mine, strict=True)]
        self._more_foreign_cpus = used[1] - used[0]
        self._explanations = list(self._told(ends, busy[1], batches, device))

    def explains(self, part: str) -> str:
        """Why a part may have risen, other than by growing; empty where nothing is known to."""
        return next((words for words, parts in self._explanations if part in parts), "")

    def explains_jump(self, part: str, step: int) -> str:
        """The same of a part that jumps at a step, of which more has to be known."""
        steps = self.facts.window.steps["step"]
        begins = steps[self.facts.window.firsts]
        if len(begins) and np.abs(begins - step).min() <= NEAR_AN_EPOCH * float(steps[-1] - steps[0]):
            return "at the start of an epoch"
        if part not in ("input", "host"):
            return "in a jump"
        return "in a jump, beside programs that were not seen" if isnan(self._more_foreign_cpus) else ""

    def memory(self) -> tuple[float, float] | None:
        """Memory of the processes at the beginning and at the end, bytes; `None`: not known."""
        means = (self._both(mean_of, name) for name in ("tree_pss_bytes", "tree_rss_bytes"))
        return next((each for each in means if not isnan(sum(each))), None)

    def _told(
        self, ends: Sequence[Records], busy_pct: float, batches: Records, device: Records
    ) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield each reason that holds, in words, and the parts that it may be the reason of.

        `ends`: the steps of the beginning and of the end; `busy_pct`: the machine's CPUs at the end.
        """
        every = (*TERMS, UNTOLD)
        # Mean elements of the batches' tensors; 0 where they are not known of most.
        sizes = [elements_of(part).astype(float) for part in ends]
        one, other = (float(each[each > 0].mean()) if (each > 0).mean() > 0.5 else 0.0 for each in sizes)
        if one and other > LARGER * one:
            yield "as batches get larger", every
        if self._more_foreign_cpus > MORE_FOREIGN_CPUS and busy_pct > NEARLY_FULL_PCT:
            yield "as other programs take more CPU time", every
        one, other = self._both(mean_of, "steal_pct")
        if other - one > MORE_STEAL_PCT:
            yield "as the hypervisor takes more CPU time", every
        # Most of what steps take longer is the training's thread ready to run: on a machine full from the beginning,
        # programs that come take no more of it, but turns. Both stretches have as many steps.
        length, later = (float(end - begin) for begin, end in self._when)
        one, other = self._both(rate_of, "main_thread_queue_ns")
        longer = later > length and other * later - one * length >= MOSTLY * (later - length)
        if busy_pct > NEARLY_FULL_PCT and longer:
            yield "as the training waits longer for a CPU", every
        one, other = self._both(mean_of, "sm_clock_mhz", device)
        if one and other / one < SLOWER_CLOCK:
            yield "as the device's clock falls", tuple(part for part in every if part != "input")
        if not self.facts.made_in_training and not self._making_grows(batches):
            yield "while batches are prepared as fast as at the beginning", ("input",)

    def _making_grows(self, batches: Records) -> bool:
        """Whether batches take longer to make; without a queue, none can have run empty."""
        ended = batches["end_ns"]
        if len(ended) == 0:
            return isnan(self.facts.loader.queue_capacity)
        took = (ended - batches["begin_ns"]).astype(float)
        one, other = (took[(ended >= low) & (ended <= high)] for low, high in self._when)
        return len(one) > 0 and len(other) > 0 and bool(other.mean() > MAKING_GROWS * one.mean())

    def _both(
        self, figure: Callable[[Records, str], float], name: str, looks: Records | None = None
    ) -> tuple[float, float]:
        """A figure of a field, at the beginning and at the end; by default of looks at the host."""
        looks = self._host if looks is None else looks
        times = looks["t_ns"]
        one, other = (figure(looks[(times >= low) & (times <= high)], name) for low, high in self._when)
        return one, other


def trends_of(
    facts: Facts, batches: Records, device: Records, host: Records
) -> tuple[tuple[Trend, ...], tuple[float, float] | None]:
    """(the trend of each part, the whole step's last; memory of the processes at the beginning and at the end, bytes)

    Nothing of a run with too few steps, or whose first were not looked at. `batches`: those of the loader that trains.
    """
    window = facts.window
    begin, end = spans_of(window)
    counts = (end > begin) & ~flagged(window.steps, StepFlag.FIRST_OF_EPOCH | StepFlag.NEW_SHAPE)
    block = _block_length((end - begin)[counts])
    if block is None or window.all_steps["step"][0] != 0:
        return (), None
    kept = np.flatnonzero(counts)[int(counts.sum()) % block :]
    around = _Surroundings(facts, batches, device, host, kept)
    begin, end = begin[kept], end[kept]
    spans = {part: when for part, when in facts.parts.when.items() if part != "boundary"}
    values: dict[str, Values] = {part: covered(when, begin, end).astype(float) for part, when in spans.items()}
    whole_ns: Values = np.asarray(sum(values.values()))
    if not facts.told_apart:
        values = {UNTOLD: whole_ns}
    numbers, first = window.steps["step"][kept].astype(float), float(window.steps["step"][0])
    whole = _trend(facts, around, TOTAL, _Series(numbers, whole_ns, block, first))
    named = [_trend(facts, around, part, _Series(numbers, ns, block, first), whole) for part, ns in values.items()]
    outside = _outside(facts, around)
    told = [*(each for each in named if each.first_ms or each.last_ms), *([outside] if outside else []), whole]
    return tuple(told), around.memory()


def _block_length(lengths: Stamps) -> int | None:
    """Steps of a block: a multiple of what steps repeat after, if so. `None`: too few steps."""
    if len(lengths) < LEAST_STEPS:
        return None
    # After how many steps the long ones come again; 1 where they do not.
    season = 1
    long = np.flatnonzero(lengths > 1.5 * np.median(lengths))
    if len(long) > LEAST_BLOCKS and len(long) <= len(lengths) / 2:
        found, counts = np.unique(np.diff(long), return_counts=True)
        season = int(found[counts.argmax()]) if counts.max() > 0.7 * (len(long) - 1) else 1
    least = -(-len(lengths) // (MOST_BLOCKS * season)) * season
    return least if len(lengths) // least >= LEAST_BLOCKS else len(lengths) // MOST_BLOCKS


def _trend(facts: Facts, around: _Surroundings, part: str, series: _Series, whole: Trend | None = None) -> Trend:
    slope, tau, told = _told(part, series)
    if told.shape == FALLS:
        return told
    change = _change(series)
    before, after = series.blocks[: change.at], series.blocks[change.at :]
    jumps, rises = False, slope.above_zero and tau >= RISES_ALL_ALONG
    if change.jump:
        # Two levels that keep apart, well inside the run.
        inside = min(len(before), len(after)) >= LEAST_SIDE * len(series.blocks)
        jumps = inside and bool(after.min() > before.max() and after.mean() > (1 + LEAST_JUMP) * before.mean())
    elif not rises and len(after) >= LEAST_BLOCKS:
        # All along from somewhere in the run. Where that is was looked for, so it has to be clearer.
        later, later_tau = theil_sen(series.times[change.at :], after)
        rises = later.above_zero and later_tau >= NEARLY_ALL
    if not jumps and not (rises and told.last_ms > told.first_ms):
        return told
    since = int(series.numbers[change.at * series.block])
    told = replace(told, shape=RISES, since=since)
    if whole is not None and whole.since is None and whole.slope.value < MOSTLY * told.slope.value:
        return replace(told, why="another part falls")
    why = around.explains(part)
    if not why and jumps:
        why = around.explains_jump(part, since)
    elif not why and not _goes_on(facts, around.kept, series, slope.value):
        why = "with the epochs' order or kind"
    if why:
        return replace(told, why=why)
    beyond = float((series.values - change.level)[change.at * series.block :].sum())
    seen = max(0.0, beyond) / max(1.0, float(series.values.sum()))
    if part in (TOTAL, UNTOLD):
        most = facts.parts.wall_ns - facts.parts.boundary_ns
    else:
        # First fetches of epochs are none of the steps that count.
        rare = facts.parts.first_fetch_ns if part == "input" else 0
        most = max(0, int(getattr(facts.parts, f"{part}_ns")) - rare)
    grown = min(float(most), seen * most)
    reach = (0.7, 1.0)
    if slope.above_zero and not jumps:
        reach = slope.low / slope.value, min(2.0, slope.high / slope.value)
    bounds = Estimate(grown, grown * reach[0], min(float(most), grown * max(1.0, reach[1])))
    return replace(told, shape=JUMPS if jumps else GROWS, grown=bounds)


def _change(series: _Series) -> _Change:
    """A level and then a slope, or a level and then another one, whichever leaves less. The level is that of the
    window's begin, and no less than the first blocks tell."""
    blocks, times = series.blocks, series.times
    number = len(blocks)
    before = times[0] - series.begin
    at_first = max(0.0, float(blocks[2] - blocks[0]) / float(times[2] - times[0]))
    least = max(0.0, float(blocks[: max(3, number // 7)].min()) - at_first * before)
    found: list[_Change] = []
    for at in range(0, number - 3):
        rising = np.maximum(0.0, times - times[at])
        design = np.stack((np.ones(number), rising), axis=1)
        fitted, *_ = np.linalg.lstsq(design, blocks, rcond=None)
        misses = float(((blocks - design @ fitted) ** 2).sum())
        level = float(fitted[0]) - (float(fitted[1]) * before if at == 0 else 0.0)
        found.append(_Change(at, max(least, level), False, misses))
    for at in range(2, number - 1):
        before, after = blocks[:at], blocks[at:]
        misses = float(((before - before.mean()) ** 2).sum() + ((after - after.mean()) ** 2).sum())
        found.append(_Change(at, float(before.mean()), True, misses))
    return min(found, key=lambda each: each.misses)


def _goes_on(facts: Facts, kept: Stamps, series: _Series, slope: float) -> bool:
    """Whether the growth goes on within epochs and from each to the next.

    Sorted samples begin anew, and kinds of epochs have a level each.
    """
    epochs = facts.window.steps["epoch"][kept]
    parts = [np.flatnonzero(epochs == each) for each in np.unique(epochs)]
    if len(parts) < 2:
        return True
    means = np.array([series.values[part].mean() for part in parts])
    if len(parts) >= MANY_EPOCHS:
        return theil_sen(np.arange(len(means), dtype=float), means)[1] >= RISES_ALL_ALONG
    within, of_within, between = 0.0, 0.0, []
    for part in parts:
        half = len(part) // 2
        if half:
            one, other = series.values[part[:half]].mean(), series.values[part[-half:]].mean()
            within += float(other - one)
            of_within += slope * float(series.numbers[part[-half:]].mean() - series.numbers[part[:half]].mean())
    for one_, other_ in pairwise(parts):
        same = min(len(one_), len(other_))
        rise = series.values[other_[:same]].mean() - series.values[one_[:same]].mean()
        of_rise = slope * float(series.numbers[other_[:same]].mean() - series.numbers[one_[:same]].mean())
        between.append(float(rise) / of_rise)
    return within >= CARRIED * of_within and float(np.median(between)) >= CARRIED


def _outside(facts: Facts, around: _Surroundings) -> Trend | None:
    """Find the trend of the stretches outside the steps; `None`: too few of them."""
    outside, steps = facts.parts.when["boundary"], facts.window.steps
    # A stretch is what lies between two steps, whatever it consists of.
    groups = np.searchsorted(steps["step_end_ns"], outside[:, 0], side="right")
    found, at = np.unique(groups, return_inverse=True)
    if len(found) < LEAST_STRETCHES:
        return None
    lengths: Values = np.bincount(at, (outside[:, 1] - outside[:, 0]).astype(float)).astype(float)
    numbers = steps["step"][np.minimum(found, len(steps) - 1)].astype(float)
    series = _Series(numbers, lengths, 1, float(numbers[0]))
    slope, tau, told = _told("boundary", series)
    if not (slope.above_zero and tau >= RISES_ALL_ALONG):
        return told
    change = _change(series)
    told = replace(told, shape=RISES, since=int(numbers[change.at]))
    if why := "in a jump" if change.jump else around.explains("boundary"):
        return replace(told, why=why)
    beyond = float((lengths - change.level)[change.at :].sum())
    grown = max(0.0, beyond) / max(1, total(outside)) * facts.parts.boundary_ns
    return replace(told, shape=GROWS, grown=Estimate(grown, grown * slope.low / slope.value, grown))


def _told(part: str, series: _Series) -> tuple[Estimate, float, Trend]:
    """(slope of its blocks in ns a step, Kendall's tau, the trend as far as these tell it)."""
    slope, tau = theil_sen(series.times, series.blocks)
    ms = Estimate(*(1e3 * each / 1e6 for each in (slope.value, slope.low, slope.high)))
    fifth = max(1, len(series.values) // 5)
    first, last = (float(values.mean()) / 1e6 for values in (series.values[:fifth], series.values[-fifth:]))
    return slope, tau, Trend(part, first, last, ms, FALLS if slope.below_zero else FLAT)


def growing(trends: Iterable[Trend]) -> dict[str, Estimate]:
    """Part → time of the window that it grew by, ns, of those that grow by themselves."""
    return {each.part: each.grown for each in trends if each.grown is not None and each.part != TOTAL}
