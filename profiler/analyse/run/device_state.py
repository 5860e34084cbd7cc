"""What held the accelerator back: its clocks, its link to the host, others that use it, as the sampler saw it; and
steps that computed longer than the others because of something that is known to have happened in them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from ...record.reader import Records, only
from ...record.schema import NOT_MEASURED, EventKind, StepFlag
from ..intervals import clip, covered, intersect, subtract, total, union, union_of
from ..shares import MOSTLY
from .resource_usage import by_device, inside, once_per_looks
from .stall_breakdown import Partition, unseen_of
from .window import Lengths, Mask, Window, elements_of, flagged, known, lasting, or_zero, per_step, under_way

IDLE, POWER_CAP, SLOWDOWN, THERMAL = 0x1, 0x4, 0x8 | 0x80, 0x20 | 0x40
"""NVML's clock event reasons: idle; power cap; hardware slowdown, power brake; temperature."""
MUCH_CAPPED = 0.8
"""Capped clock over the highest one, from which the cap counts for nothing: many always run so."""
CLEARLY_HIGHER = 1.1
"""Uncapped clock over the capped one of a mostly uncapped card, from which the cap slows it."""
LOADED_PCT = 50.0
"""Utilisation, in percent, from which a link has no reason to turn itself down."""
LOADED_WITHIN_NS = 1_000_000_000
"""Distance of a utilisation window from a look at the link, up to which they belong together."""
LEAST_WINDOWS = 6
"""Utilisation windows that foreign kernels are told by, at least: a second of the shortest."""
LEAST_LOOKS = 3
"""Looks at a device that its clocks, or its link, are judged by, at least."""
LEAST_IDLE_SHARE = 0.1
"""Share of the time that the device is left idle, below which foreign kernels are not told."""
LEAST_FOREIGN_SHARE = 0.03
"""Share of the time in which foreign kernels run, from which they are told: less is rounding."""
LANE_GBS = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}
"""What a PCIe lane carries in one direction, by generation."""
LEAST_OTHERS, LEAST_OTHERS_SHARE = 3, 0.1
"""Ordinary steps that odd ones are compared with, at least: in all, and of all steps."""
LEAST_TIMES = 1.5
"""Time of a step with new shapes over what its size explains, from which it counts as slow."""
SIZE_EXPLAINS = 2
"""Power of a batch's size that explains its step's time: attention is quadratic."""
MOST_RETRIED = 0.7
"""Retries a step, up to which the slowest steps are those that retried; beyond, nearly all did."""
CLEARLY_SLOWER = 1.2
"""Time of steps that retried over that of others, where nothing but length tells them."""
LEAST_IDLE = 0.05
"""Share of the time that the device idles within the steps, by the driver's utilisation, from which retries at
nearly every step are the reason. Below `UTILISATION_BELOW`: something is known to have happened here."""
LOOKS_NS = 250_000_000
"""Longest time from an allocator's retry until it is told: it is asked up to 5 times a second."""


@dataclass(frozen=True)
class Throttled:
    """Clocks that were held down."""

    lost: float
    """Share of the computing time that would vanish at full clocks, 0..1."""
    share: float
    """Share of the looks at which clocks were held down."""
    clock_mhz: float
    """Mean clock while it was held down."""
    full_mhz: float
    """Clock while it was not; the highest one where it nearly always was."""
    by: str
    """What held it down most often, in words."""


@dataclass(frozen=True)
class PcieLink:
    """The link between host and device at its best: an idle one turns itself down."""

    generation: int
    width: int
    """Lanes."""
    most_generation: int
    """The best generation that both device and slot are capable of."""
    most_width: int
    """The most lanes that both are capable of."""
    loaded: bool = False
    """Whether enough of the looks at it came while the device was in use."""

    @property
    def share(self) -> float:
        """Bandwidth over what device and slot are capable of, 0..1."""
        best = LANE_GBS[self.generation] * self.width
        return min(1.0, best / (LANE_GBS[self.most_generation] * self.most_width))


@dataclass(frozen=True)
class ForeignKernels:
    """Other processes' kernels, as shares of utilisation windows within the steps, 0..1."""

    density: float
    """Share of the time in which the training's steps did not compute that they ran in."""
    busy: float
    """Share in which some process's kernel ran."""
    own: float
    """Share in which the training's own steps computed."""
    windows: int
    """How many such windows there were."""


@dataclass(frozen=True)
class DeviceState:
    """Clocks, link and utilisation of the accelerators. `None`: not measured."""

    throttled: Throttled | None
    """Device that lost most by it: the others wait for it. `None` also: always at full clocks."""
    link: PcieLink | None
    """Of the device with the best link: which one a rank copies to is not known."""
    clock_mhz: float | None = None
    """Mean clock of the multiprocessors while steps computed, of the device with the lowest."""
    utilisation: Records | None = field(default=None, repr=False, compare=False)
    """Looks that tell the driver's utilisation of a window of known length; `None` also: several devices, one of them
    this rank's."""


def device_state(window: Window, device: Records, parts: Partition) -> DeviceState:
    """What the sampler's looks within the window tell."""
    looks = inside(device, window)
    clocks = []
    for each in by_device(looks):
        # While a step computed, since an idle device turns its clock down.
        loaded = each[covered(parts.when["compute"], each["t_ns"], each["t_ns"] + 1) > 0]
        clocks += [float(mhz.mean())] if len(mhz := known(loaded, "sm_clock_mhz")) else []
    return replace(_of_looks(looks), clock_mhz=min(clocks, default=None))


@once_per_looks
def _of_looks(looks: Records) -> DeviceState:
    """What looks tell without the steps."""
    each = by_device(looks)
    throttled = [held for one in each if (held := _throttled(one)) is not None]
    links = [link for one in each if (link := _link(one)) is not None]
    utilisation = None
    if len(each) == 1:
        told = each[0][~np.isnan(each[0]["utilisation_pct"]) & (each[0]["window_ns"] > 0)]
        if len(told):
            utilisation = only(told, ("t_ns", "window_ns", "utilisation_pct"))
    return DeviceState(
        max(throttled, key=lambda held: held.lost, default=None),
        max(links, key=lambda link: link.share, default=None),
        utilisation=utilisation,
    )


def foreign_kernels_of(window: Window, parts: Partition, utilisation: Records | None) -> ForeignKernels | None:
    """Compare other processes' kernels with the steps' own computing, window by window.

    Windows that touch evaluating, saving or unsampled steps say nothing: this training's own kernels may run there.
    `None`: too few are left, the device is hardly idle in them, or no foreign kernels show.
    """
    if utilisation is None:
        return None
    begin, end = utilisation["t_ns"] - utilisation["window_ns"], utilisation["t_ns"]
    unknown = union_of(parts.when["boundary"], subtract(unseen_of(window)[0], parts.when["compute"]))
    last = min(window.end_ns, int(window.steps["step_end_ns"].max()))
    within = (begin >= window.begin_ns) & (end <= last) & (covered(unknown, begin, end) == 0)
    if within.sum() < LEAST_WINDOWS:
        return None
    begin, end = begin[within], end[within]
    length = end - begin
    own = float(covered(parts.when["compute"], begin, end).sum() / length.sum())
    busy = float(np.average(utilisation["utilisation_pct"][within] / 100, weights=length))
    if 1 - own < LEAST_IDLE_SHARE or busy - own < LEAST_FOREIGN_SHARE:
        return None
    return ForeignKernels(min(1.0, (busy - own) / (1 - own)), busy, own, len(length))


def _throttled(looks: Records) -> Throttled | None:
    """Of one device; `None` where its clocks were never held down, or too few looks tell."""
    told = looks[(looks["sm_clock_mhz"] > 0) & (looks["sm_clock_max_mhz"] > 0)]
    told = told[(or_zero(told["throttle_reasons"]) & IDLE) == 0]
    if len(told) < LEAST_LOOKS:
        return None
    reasons = or_zero(told["throttle_reasons"])
    hot = ((reasons & THERMAL) != 0) | _rising(told, "thermal_ns")
    braked = (reasons & SLOWDOWN) != 0
    capped = ((reasons & POWER_CAP) != 0) | _rising(told, "power_capped_ns")
    clock, most = told["sm_clock_mhz"].astype(np.float64), float(told["sm_clock_max_mhz"].max())
    free = ~(hot | braked | capped)
    # A power cap is a matter of course, unless it takes much, or the card mostly runs clearly faster without.
    usual = float(np.median(clock[free])) if free.mean() >= MOSTLY else 0.0
    capped &= (clock < MUCH_CAPPED * most) | (CLEARLY_HIGHER * clock <= usual)
    held = hot | braked | capped
    if not held.any():
        return None
    unheld = clock[~held]
    full = min(most, float(np.median(unheld))) if len(unheld) >= LEAST_LOOKS else most
    slower = np.where(held, np.maximum(0.0, 1 - clock / full), 0.0)
    causes = {"temperature": hot, "a slowdown of the hardware": braked, "the power cap": capped}
    by = max(causes, key=lambda name: int(causes[name].sum()))
    return Throttled(float(slower.mean()), float(held.mean()), float(clock[held].mean()), full, by)


def _rising(looks: Records, counter: str) -> Mask:
    """At which looks a counter of ns had risen for most of the time since the one before."""
    values, times = looks[counter], looks["t_ns"]
    rose = np.zeros(len(looks), dtype=bool)
    both = (values[1:] != NOT_MEASURED) & (values[:-1] != NOT_MEASURED)
    rose[1:] = both & (np.diff(values) > MOSTLY * np.diff(times)) & (np.diff(times) > 0)
    rose[:1] = rose[1:2]
    return rose


def _link(looks: Records) -> PcieLink | None:
    told = looks[
        np.isin(looks["pcie_generation"], list(LANE_GBS))
        & np.isin(looks["pcie_max_generation"], list(LANE_GBS))
        & (looks["pcie_width"] > 0)
        & (looks["pcie_max_width"] > 0)
    ]
    if len(told) < LEAST_LOOKS:
        return None
    lanes = np.array([LANE_GBS[int(generation)] for generation in told["pcie_generation"]])
    best = told[int((lanes * told["pcie_width"]).argmax())]
    # The mean of the utilisation around each of the looks; NaN where it is not known.
    used = looks[~np.isnan(looks["utilisation_pct"])]
    used = used[np.argsort(used["t_ns"], kind="stable")]
    before = np.concatenate(([0.0], np.cumsum(used["utilisation_pct"])))
    first = np.searchsorted(used["t_ns"], told["t_ns"] - LOADED_WITHIN_NS, side="left")
    stop = np.searchsorted(used["t_ns"], told["t_ns"] + LOADED_WITHIN_NS, side="right")
    around = np.where(stop > first, (before[stop] - before[first]) / np.maximum(1, stop - first), np.nan)
    loaded = int((around >= LOADED_PCT).sum()) >= LEAST_LOOKS
    generation, width, *most = (
        int(best[f"pcie_{name}"]) for name in ("generation", "width", "max_generation", "max_width")
    )
    return PcieLink(generation, width, most[0], most[1], loaded)


@dataclass(frozen=True)
class OutlierSteps:
    """Steps that computed longer than others, and their cost beyond ordinary ones, ns."""

    hit: int
    """Steps that are so."""
    of: int
    """Steps that were looked at."""
    compute_ns: float
    """Time they cost while the device computed."""
    host_ns: float
    """Time they cost while the device idled behind the host."""
    times: float | None
    """An odd step's computation over that of an ordinary one, or over what its size explains if that is more;
    medians. `None` without ordinary ones."""
    longest_ns: float
    """Computation of the longest odd step."""
    usual_ns: float | None
    """Computation of an ordinary step, the median; `None` without any."""
    count: int = 0
    """How often the allocator tried again, or the compiler was at work."""
    compiling_ns: float = 0.0
    """Part of `compute_ns` and `host_ns` in which torch's compiler was at work."""

    @property
    def total_ns(self) -> float:
        return self.compute_ns + self.host_ns


def shape_churn(window: Window, events: Records, parts: Partition) -> OutlierSteps | None:
    """Find steps with input shapes not seen before, or in which torch's compiler was at work.

    New shapes count as far as they take longer than their size explains: unusual lengths are both new and long.
    """
    elements, new = elements_of(window.steps), flagged(window.steps, StepFlag.NEW_SHAPE)
    compiling, boundaries = (
        clip(under_way(lasting(events, kind)), window.begin_ns, window.end_ns)
        for kind in (EventKind.COMPILE, EventKind.BOUNDARY)
    )
    compiling = subtract(compiling, boundaries)
    compiled = per_step(window, compiling) > 0
    direct = [
        parts.of_all_steps(part, float(total(intersect(compiling, parts.when[part])))) for part in ("compute", "host")
    ]
    ordinary = ~new & ~compiled & (flagged(window.steps, StepFlag.SHAPE_KNOWN) | compiled.any())
    sized = ordinary & (elements > 0)
    odd, explained = compiled, np.ones(len(elements))
    if sized.any():
        larger = np.maximum(1.0, elements / np.median(elements[sized]))
        odd, explained = compiled | (new & (elements > 0)), np.where(compiled, 1.0, larger**SIZE_EXPLAINS)
    if not odd.any():
        return None
    found = _beyond(window, parts, odd, ordinary, explained)
    if found is not None and (found.times is None or found.times < LEAST_TIMES):
        found = None
    if found is None or (not window.queued and sum(direct) > found.total_ns):
        # Work that the device had queued meanwhile is not told from the compiler's time.
        times, usual = (None, None) if found is None else (found.times, found.usual_ns)
        longest = float((compiling[:, 1] - compiling[:, 0]).max(initial=0))
        found = OutlierSteps(int(compiled.sum()), len(odd), direct[0], direct[1], times, longest, usual)
    if found.total_ns <= 0:
        return None
    return replace(found, count=len(compiling), compiling_ns=min(sum(direct), found.total_ns))


def memory_pressure(window: Window, events: Records, parts: Partition, utilisation_pct: float) -> OutlierSteps | None:
    """Find the steps around the allocator's retries; `None` if there were none, or nothing to compare with.

    Where nearly every step retries, the device's idling behind the host and within the steps is taken for it.
    """
    steps, told = window.steps, events[events["what"] == EventKind.ALLOCATOR_RETRIES]
    told = told[np.argsort(told["t_ns"], kind="stable")]
    at, grew = told["t_ns"], np.diff(told["value"], prepend=0)
    begin = np.maximum(at - LOOKS_NS, np.concatenate((at[:1] - LOOKS_NS, at[:-1])))
    counted = (grew > 0) & (at > window.begin_ns) & (at <= window.end_ns)
    if not counted.any():
        return None
    looks = union(begin[counted], at[counted])
    near = covered(looks, steps["fetch_begin_ns"], np.maximum(steps["step_end_ns"], steps["fetch_begin_ns"] + 1)) > 0
    retries = int(grew[counted].sum())
    found = _beyond(window, parts, near, ~near)
    if found is None:
        both = per_step(window, parts.when["compute"]) + per_step(window, parts.when["host"])
        if retries <= MOST_RETRIED * len(near):
            # Told so often that no step is far from one: as many of the slowest as there were retries.
            near = np.zeros(len(both), dtype=bool)
            near[np.argsort(both)[-retries:]] = True
            found = _beyond(window, parts, near, ~near)
            if found is not None and (found.times or 0.0) < CLEARLY_SLOWER:
                return None
        else:
            idle = parts.share("compute") - utilisation_pct / 100
            within = idle * parts.wall_ns if idle >= LEAST_IDLE else 0.0
            found = OutlierSteps(len(near), len(near), within, float(parts.host_ns), None, float(both.max()), None)
    if found is None or found.total_ns <= 0:
        return None
    return replace(found, hit=min(found.hit, retries), count=retries)


def _beyond(
    window: Window, parts: Partition, odd: Mask, ordinary: Mask, explained: Lengths | None = None
) -> OutlierSteps | None:
    """Compare the odd steps with the median of the ordinary ones; `None` with too few of either.

    `explained`: how many times as long each step may take without being odd; by default once.
    """
    computing, behind = (per_step(window, when) for when in (parts.when["compute"], parts.when["host"]))
    stamped = (window.steps["device_end_ns"] != NOT_MEASURED) | np.bool_(not window.queued)
    odd, ordinary = odd & stamped, ordinary & stamped
    if not odd.any() or ordinary.sum() < max(LEAST_OTHERS, LEAST_OTHERS_SHARE * len(odd)):
        return None
    times_usual = np.ones(int(odd.sum())) if explained is None else explained[odd]
    beyond = []
    for lengths in (computing, behind):
        rest = lengths[odd] - times_usual * np.median(lengths[ordinary])
        # Where it is a bound, what stays below it makes up for nothing. Of steps that nobody looked at, nothing is
        # known to be odd.
        beyond.append(max(0.0, float(np.where(times_usual > 1, np.maximum(0.0, rest), rest).sum())))
    both = computing + behind
    usual = float(np.median(both[ordinary]))
    times = float(np.median(both[odd] / times_usual)) / usual if usual > 0 else None
    return OutlierSteps(int(odd.sum()), len(odd), beyond[0], beyond[1], times, float(both[odd].max()), usual)
