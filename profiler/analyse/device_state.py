"""What held the accelerator back, as the sampler saw it: its clocks, its link to the host, others that use it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..record.reader import Records
from ..record.schema import NOT_MEASURED
from .sampled import Sampled
from .window import Window

IDLE, POWER_CAP, SLOWDOWN, THERMAL = 0x1, 0x4, 0x8 | 0x80, 0x20 | 0x40
"""Bits of NVML's clock event reasons: nothing to do; software power cap; slowdown and power brake by the hardware;
temperature, told by software or hardware."""
MUCH_CAPPED = 0.8
"""A power cap that leaves more of the highest clock is how many cards always run."""
LEAST_LOOKS = 3
LEAST_IDLE_SHARE = 0.1
"""A device that idles less for this training has no room to tell others' work by."""
LEAST_FOREIGN_SHARE = 0.03
"""Of all time; less is how finely utilisation is told."""
LANE_GBS = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}
"""What a PCIe lane carries in one direction, by generation."""

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Throttled:
    lost: float
    """Share of the computing time that would vanish at full clocks, 0..1."""
    share: float
    """Share of the looks at which clocks were held down."""
    clock_mhz: float
    """Mean clock then."""
    full_mhz: float
    """Clock without."""
    by: str


@dataclass(frozen=True)
class Link:
    generation: int
    width: int
    """The best that was seen: an idle link turns itself down."""
    most_generation: int
    most_width: int

    @property
    def share(self) -> float:
        """Bandwidth over what device and slot are capable of, 0..1."""
        best = LANE_GBS[self.generation] * self.width
        return min(1.0, best / (LANE_GBS[self.most_generation] * self.most_width))


@dataclass(frozen=True)
class DeviceState:
    """`None`: not measured, or (of `throttled`) full clocks all the time. Of several devices: see each."""

    throttled: Throttled | None
    """Of the one that lost most: all wait for it, as a rule."""
    link: Link | None
    """Of the one with the best link: which one a rank copies to is not known."""


def device_state(window: Window, device: Records) -> DeviceState:
    """What the looks within the window tell."""
    looks = device[(device["t_ns"] >= window.begin_ns) & (device["t_ns"] <= window.end_ns)]
    each = [looks[looks["device"] == number] for number in np.unique(looks["device"])]
    throttled = [held for one in each if (held := _throttled(one)) is not None]
    links = [link for one in each if (link := _link(one)) is not None]
    return DeviceState(
        max(throttled, key=lambda held: held.lost, default=None),
        max(links, key=lambda link: link.share, default=None),
    )


def foreign_density(device: Records, seen: Sampled, own_share: float) -> float | None:
    """Share of the time in which others' kernels run, 0..1, by the utilisation while this training left it idle.

    `None` where that cannot be told: no other process is known, the training hardly leaves the device idle, or there
    are several devices.

    Args:
        own_share: share of the wall time from the begin to the end of the steps' computation.
    """
    others = (seen.gpu_processes or 0) > 1 or (seen.others_least_bytes or 0) > 0
    if not others or seen.utilisation_pct is None or len(np.unique(device["device"])) > 1:
        return None
    beyond = seen.utilisation_pct / 100 - own_share
    if 1 - own_share < LEAST_IDLE_SHARE or beyond < LEAST_FOREIGN_SHARE:
        return None
    return min(1.0, beyond / (1 - own_share))


def _throttled(looks: Records) -> Throttled | None:
    known = looks[(looks["sm_clock_mhz"] > 0) & (looks["sm_clock_max_mhz"] > 0)]
    reasons = np.where(known["throttle_reasons"] == NOT_MEASURED, 0, known["throttle_reasons"])
    known, reasons = known[(reasons & IDLE) == 0], reasons[(reasons & IDLE) == 0]
    if len(known) < LEAST_LOOKS:
        return None
    hot = ((reasons & THERMAL) != 0) | _rising(known, "thermal_ns")
    braked = (reasons & SLOWDOWN) != 0
    capped = ((reasons & POWER_CAP) != 0) | _rising(known, "power_capped_ns")
    clock, most = known["sm_clock_mhz"].astype(np.float64), float(known["sm_clock_max_mhz"].max())
    # A power cap that is there all the time is a matter of course, unless it takes much.
    capped &= bool((~capped).any()) | (clock < MUCH_CAPPED * most)
    held = hot | braked | capped
    if not held.any():
        return None
    free = clock[~held]
    full = min(most, float(np.median(free))) if len(free) >= LEAST_LOOKS else most
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
    rose[1:] = both & (np.diff(values) > 0.5 * np.diff(times)) & (np.diff(times) > 0)
    rose[:1] = rose[1:2]
    return rose


def _link(looks: Records) -> Link | None:
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
    return Link(*(int(best[f"pcie_{name}"]) for name in ("generation", "width", "max_generation", "max_width")))
