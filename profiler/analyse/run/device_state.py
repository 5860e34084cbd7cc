"""What held the accelerator back, as the sampler saw it: its clocks, its link to the host, others that use it.

The looks of a sampler within a window. The ranks of a job on one host have the same sampler, and most of them the
same of its looks: what these tell is worked out once for ranks that are judged one after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from ...record.reader import Records
from ...record.schema import NOT_MEASURED
from ..intervals import covered, subtract, union_of
from ..shares import MOSTLY
from .stall_breakdown import Partition
from .unsampled_steps import unseen_of
from .window import Window

Found = TypeVar("Found")


class OncePerLooks(Generic[Found]):
    """A function of looks, which gives again what it gave last where it is asked of the very same. Only of few: many
    are not kept in memory for it."""

    def __init__(self, make: Callable[[Records], Found]) -> None:
        self._make = make
        self._last: tuple[Records, Found] | None = None

    def __call__(self, looks: Records) -> Found:
        last = self._last
        if last is not None and last[0] is looks:
            return last[1]
        found = self._make(looks)
        self._last = (looks, found) if isinstance(looks, np.ndarray) else None
        return found


_selected: dict[np.dtype[np.void], tuple[Records, npt.NDArray[np.bool_], Records]] = {}
"""By their kind, the looks that were last selected from, which, and the selection."""


def inside(looks: Records, window: Window) -> Records:
    """Those that were made within the window."""
    which = (looks["t_ns"] >= window.begin_ns) & (looks["t_ns"] <= window.end_ns)
    last = _selected.get(looks.dtype)
    if last is not None and last[0] is looks and np.array_equal(last[1], which):
        return last[2]
    found: Records = looks[which]
    if isinstance(looks, np.ndarray):
        _selected[looks.dtype] = (looks, which, found)
    return found


def _by_device(looks: Records) -> list[Records]:
    return [looks[looks["device"] == number] for number in np.unique(looks["device"])]


by_device = OncePerLooks(_by_device)
"""The looks at each device, by its number."""


IDLE, POWER_CAP, SLOWDOWN, THERMAL = 0x1, 0x4, 0x8 | 0x80, 0x20 | 0x40
"""Bits of NVML's clock event reasons: nothing to do; software power cap; slowdown and power brake by the hardware;
temperature, told by software or hardware."""
MUCH_CAPPED = 0.8
"""Clock under a power cap over the highest one, from which the cap takes too little to count: many cards always run
so."""
CLEARLY_HIGHER = 1.1
"""Clock of a card that mostly runs without its power cap over its clock under it, from which the cap slows it."""
LOADED_PCT = 50.0
"""Utilisation, in percent, from which a link has no reason to turn itself down."""
LOADED_WITHIN_NS = 1_000_000_000
"""Distance of a utilisation window from a look at the link, up to which it tells what the device did then."""
LEAST_WINDOWS = 6
"""Utilisation windows within the steps that other processes' kernels are told by, at least: a second of the shortest
that the driver has."""
LEAST_LOOKS = 3
"""Looks at a device that its clocks, or its link, are judged by, at least."""
LEAST_IDLE_SHARE = 0.1
"""Share of the time that a training has to leave its device idle for other processes' kernels to be told by what runs
then."""
LEAST_FOREIGN_SHARE = 0.03
"""Share of the time in which other processes' kernels have to run to be told: less is how finely utilisation is."""
LANE_GBS = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}
"""What a PCIe lane carries in one direction, by generation."""

Values = npt.NDArray[np.float64]


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
    """The link between host and device, at the best that was seen: an idle one turns itself down."""

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
class Utilisation:
    """Windows of known length, of one device."""

    begin_ns: npt.NDArray[np.int64]
    end_ns: npt.NDArray[np.int64]
    busy: Values
    """Share of each in which some process's kernel ran, 0..1."""


@dataclass(frozen=True)
class ForeignKernels:
    """Kernels of other processes, in utilisation windows that lie within the steps; shares of these windows, 0..1."""

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
    """Clocks, link and utilisation of the accelerators that the sampler saw. `None`: not measured."""

    throttled: Throttled | None
    """Of the device that lost most by it: all wait for it, as a rule. `None` also for full clocks all the time."""
    link: PcieLink | None
    """Of the device with the best link: which one a rank copies to is not known."""
    clock_mhz: float | None = None
    """Mean clock of the multiprocessors over the looks at which a step computed; of the device where it is lowest."""
    utilisation: Utilisation | None = field(default=None, repr=False, compare=False)
    """Windows of the driver's utilisation; `None` also with several devices: which one a rank uses is not known."""


def device_state(window: Window, device: Records, parts: Partition) -> DeviceState:
    """What the sampler's looks within the window tell."""
    by_itself, clocks = _by_itself(inside(device, window))
    loaded = (clock for told in clocks if (clock := _clock_mhz(told, parts)) is not None)
    return replace(by_itself, clock_mhz=min(loaded, default=None))


def _of_looks(looks: Records) -> tuple[DeviceState, list[Records]]:
    """(what looks tell without the steps, those at each device that tell a clock)"""
    each = by_device(looks)
    throttled = [held for one in each if (held := _throttled(one)) is not None]
    links = [link for one in each if (link := _link(one)) is not None]
    state = DeviceState(
        max(throttled, key=lambda held: held.lost, default=None),
        max(links, key=lambda link: link.share, default=None),
        utilisation=_utilisation(each[0]) if len(each) == 1 else None,
    )
    clocks = [one[one["sm_clock_mhz"] != NOT_MEASURED] for one in each]
    return state, [told for told in clocks if len(told)]


_by_itself = OncePerLooks(_of_looks)


def _clock_mhz(told: Records, parts: Partition) -> float | None:
    """Mean clock while a step computed, since an idle device turns it down; `None` where no look came then."""
    loaded = told[covered(parts.computing, told["t_ns"], told["t_ns"] + 1) > 0]
    return float(loaded["sm_clock_mhz"].mean()) if len(loaded) else None


def foreign_kernels_of(window: Window, parts: Partition, utilisation: Utilisation | None) -> ForeignKernels | None:
    """What other processes' kernels add to the steps' own computing, compared window by window.

    Evaluating, saving and steps that nobody looked at may run kernels of this training that no step tells of: windows
    that touch them say nothing. `None` where too few are left, the training hardly leaves the device idle in them, or
    nobody else's kernels show.
    """
    if utilisation is None:
        return None
    begin, end = utilisation.begin_ns, utilisation.end_ns
    unknown = union_of(parts.outside, subtract(unseen_of(window, True)[0], parts.computing))
    last = min(window.end_ns, int(window.steps["step_end_ns"].max()))
    within = (begin >= window.begin_ns) & (end <= last) & (covered(unknown, begin, end) == 0)
    if within.sum() < LEAST_WINDOWS:
        return None
    begin, end = begin[within], end[within]
    length = end - begin
    own = float(covered(parts.computing, begin, end).sum() / length.sum())
    busy = float(np.average(utilisation.busy[within], weights=length))
    if 1 - own < LEAST_IDLE_SHARE or busy - own < LEAST_FOREIGN_SHARE:
        return None
    return ForeignKernels(min(1.0, (busy - own) / (1 - own)), busy, own, len(length))


def _throttled(looks: Records) -> Throttled | None:
    """Of one device; `None` where its clocks were never held down, or too few looks tell."""
    known = looks[(looks["sm_clock_mhz"] > 0) & (looks["sm_clock_max_mhz"] > 0)]
    reasons = np.where(known["throttle_reasons"] == NOT_MEASURED, 0, known["throttle_reasons"])
    known, reasons = known[(reasons & IDLE) == 0], reasons[(reasons & IDLE) == 0]
    if len(known) < LEAST_LOOKS:
        return None
    hot = ((reasons & THERMAL) != 0) | _rising(known, "thermal_ns")
    braked = (reasons & SLOWDOWN) != 0
    capped = ((reasons & POWER_CAP) != 0) | _rising(known, "power_capped_ns")
    clock, most = known["sm_clock_mhz"].astype(np.float64), float(known["sm_clock_max_mhz"].max())
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
    which = max((("temperature", hot), ("a slowdown of the hardware", braked), ("the power cap", capped)), key=_weight)
    return Throttled(float(slower.mean()), float(held.mean()), float(clock[held].mean()), full, which[0])


def _weight(cause: tuple[str, npt.NDArray[np.bool_]]) -> int:
    return int(cause[1].sum())


def _rising(looks: Records, counter: str) -> npt.NDArray[np.bool_]:
    """At which looks a counter of nanoseconds had risen for most of the time since the look before."""
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
    loaded = int((_utilised_pct(looks, told["t_ns"]) >= LOADED_PCT).sum()) >= LEAST_LOOKS
    return PcieLink(
        int(best["pcie_generation"]),
        int(best["pcie_width"]),
        int(best["pcie_max_generation"]),
        int(best["pcie_max_width"]),
        loaded,
    )


def _utilised_pct(looks: Records, times: npt.NDArray[np.int64]) -> Values:
    """Mean of the utilisation around each of these times; NaN where it is not known."""
    told = looks[~np.isnan(looks["utilisation_pct"])]
    told = told[np.argsort(told["t_ns"], kind="stable")]
    before = np.concatenate(([0.0], np.cumsum(told["utilisation_pct"])))
    first = np.searchsorted(told["t_ns"], times - LOADED_WITHIN_NS, side="left")
    stop = np.searchsorted(told["t_ns"], times + LOADED_WITHIN_NS, side="right")
    return np.where(stop > first, (before[stop] - before[first]) / np.maximum(1, stop - first), np.nan)


def _utilisation(looks: Records) -> Utilisation | None:
    told = looks[~np.isnan(looks["utilisation_pct"]) & (looks["window_ns"] > 0)]
    if len(told) == 0:
        return None
    return Utilisation(told["t_ns"] - told["window_ns"], told["t_ns"], told["utilisation_pct"] / 100)
