"""The memory of a loader's workers that grows all through a run, how it grows, and when there is none left.

A worker that keeps what it makes has more resident memory from batch to batch. One that goes through Python objects
that it shares with the training since it was forked changes their reference counts: each page of them is copied, which
leaves its resident memory as it was, and makes more of that private.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ...record.reader import Records, measured
from ...record.schema import NOT_MEASURED, MemoryLimitOf
from .window import Window

THIRDS = 3
LEVELS_OFF = 0.5
"""Growth in the last third of a run, as a share of that in the second, below which memory levels off: a cache that is
full, a pool that has its size."""
LEAST_GROWN_BYTES = 32 << 20
"""Over the run: less is what allocators take and keep."""
LEAST_LOOKS = 4
"""Looks at private memory, which is seldom asked for, from which copies are told."""
MOSTLY_PRIVATE = 0.5
"""Growth of resident memory, as a share of that of private memory, below which pages are copied."""
FULL_BYTES = 256 << 20
"""Memory that a machine could still give, below which it has none left: it writes pages to storage, or kills."""
FULL_LIMIT = 0.03
"""Of a limit of a control group: less of it left is none, where that is less than `FULL_BYTES`."""
SWAPPED_BYTES = 32 << 20
"""Rise of the memory that lies in swap from which the machine swaps."""
OWNERS = {
    MemoryLimitOf.CONTAINER: "the container",
    MemoryLimitOf.JOB: "the batch system's job",
    MemoryLimitOf.SLICE: "the systemd slice",
    MemoryLimitOf.GROUP: "the control group",
}
_S = 10**9

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class MemoryLimitSeen:
    """A control group's limit on the training's memory."""

    whose: int
    """A `MemoryLimitOf` value."""
    bytes: int
    slows: bool
    """Above it the kernel slows processes down; else it kills one."""
    swap_bytes: int | None
    """What it may put into swap; `None`: as much as there is."""

    @property
    def owner(self) -> str:
        return OWNERS.get(self.whose, OWNERS[MemoryLimitOf.GROUP])


@dataclass(frozen=True)
class MemoryGrowth:
    """Memory that grew from third to third of a run and did not level off."""

    bytes_per_s: float
    """What all processes of the training take more, in the later part of the run."""
    copied: bool
    """By copies of pages that were shared; else by what workers keep."""
    workers: int
    available_bytes: int | None
    """Memory that was left at the end; `None` where that was not measured."""
    elapsed_s: float
    full_share: float
    """Share of the run, 0..1, in which there was none left, or the machine swapped."""
    stalled_share: float | None
    """Share of the run in which tasks of the machine waited for memory; `None` where the kernel does not tell."""
    swapped_bytes: int
    """Rise of the memory of the machine, or of the control group that is short, that lies in swap."""
    limit: MemoryLimitSeen | None = None
    """The limit of a control group that leaves less than the machine has; `None`: the machine's memory ends first."""
    kills: int | None = None
    """Processes that the kernel killed for want of memory while it was recorded; `None` where it does not tell."""

    @property
    def full_in_s(self) -> float | None:
        """Until nothing is left at this pace; `None` where what is left was not measured."""
        return None if self.available_bytes is None else max(0, self.available_bytes) / self.bytes_per_s


def memory_growth_of(
    window: Window, host: Records, limits: Records, workers: int | None, info: dict[str, Any]
) -> MemoryGrowth | None:
    """How the workers' memory grew; `None` where it did not, or there are no workers.

    Args:
        host: HOST records.
        limits: MEMORY records.
        workers: worker processes of the training's loader.
        info: run.json; its `emulated_memory_bytes`, where it has them, are what the workers may take more from the
            window's begin on, in place of what the machine could give.
    """
    seen = host[(host["t_ns"] >= window.begin_ns) & (host["t_ns"] <= window.end_ns)]
    # Workers are seen one after another when they start: what a newly seen one has is no growth.
    seen = seen[seen["tree_processes"] == seen["tree_processes"].max(initial=NOT_MEASURED)]
    if not workers or len(seen) < 2 * THIRDS:
        return None
    own = _growth(seen["t_ns"], measured(seen["tree_rss_bytes"]) - measured(seen["main_rss_bytes"]))
    private = _growth(seen["t_ns"], measured(seen["tree_private_bytes"]), LEAST_LOOKS)
    copied = private is not None and (own is None or own < MOSTLY_PRIVATE * private)
    growth = private if copied else own
    if growth is None:
        return None
    kills = kills_of(limits)
    limits = limits[(limits["t_ns"] <= window.end_ns) & (limits["whose"] != NOT_MEASURED)]
    available = measured(seen["memory_available_bytes"])
    limit = _binding(limits, available)
    short = available < (FULL_BYTES if limit is None else min(FULL_BYTES, FULL_LIMIT * limit.bytes))
    emulated = info.get("emulated_memory_bytes")
    if isinstance(emulated, int):
        taken = measured(seen["tree_rss_bytes"]) - measured(seen["main_rss_bytes"])
        available = emulated - (taken - np.nanmin(taken))
        short, limit = available <= 0, None
    known = available[~np.isnan(available)]
    swapped = _risen(seen["swap_used_bytes"])
    if limit is not None:
        swapped = max(swapped, _risen(limits[limits["t_ns"] >= window.begin_ns]["swap_used_bytes"]))
    elapsed_s = float(seen["t_ns"][-1] - seen["t_ns"][0]) / _S
    return MemoryGrowth(
        bytes_per_s=growth,
        copied=copied,
        workers=workers,
        available_bytes=int(known[-1]) if len(known) else None,
        elapsed_s=elapsed_s,
        full_share=1.0 if swapped >= SWAPPED_BYTES else float(np.mean(short)),
        stalled_share=_stalled(seen, elapsed_s),
        swapped_bytes=swapped,
        limit=limit,
        kills=kills,
    )


def kills_of(limits: Records) -> int | None:
    """Processes that the kernel killed for want of memory while it was recorded; `None`: not told.

    Args:
        limits: MEMORY records.
    """
    told = limits["oom_kills"][limits["oom_kills"] != NOT_MEASURED]
    return max(0, int(told[-1] - told[0])) if len(told) else None


def _binding(limits: Records, available: Values) -> MemoryLimitSeen | None:
    """The limit seen last, where what was left then is what it leaves, and not less because the machine has less."""
    known = available[~np.isnan(available)]
    if not len(limits) or not len(known):
        return None
    last = limits[-1]
    if known[-1] < max(0, last["limit_bytes"] - last["used_bytes"]):
        return None
    swap = last["swap_limit_bytes"]
    return MemoryLimitSeen(
        int(last["whose"]), int(last["limit_bytes"]), last["slows"] == 1, None if swap == NOT_MEASURED else int(swap)
    )


def _risen(values: npt.NDArray[np.int64]) -> int:
    known = values[values != NOT_MEASURED]
    return max(0, int(known[-1] - known[0])) if len(known) else 0


def _growth(t_ns: npt.NDArray[np.int64], values: Values, least: int = 2 * THIRDS) -> float | None:
    """Bytes a second, from the middle of the second third of the time to that of the last; `None` where it did not
    grow all the time, or levels off."""
    known = ~np.isnan(values)
    t_ns, values = t_ns[known], values[known]
    if len(values) < least or t_ns[-1] == t_ns[0]:
        return None
    third = np.minimum(THIRDS - 1, (t_ns - t_ns[0]) * THIRDS // (t_ns[-1] - t_ns[0] + 1))
    if len(np.unique(third)) < THIRDS:
        return None
    middles = [(float(np.median(t_ns[third == n])), float(np.median(values[third == n]))) for n in range(THIRDS)]
    (t0, first), (t1, second), (t2, last) = middles
    before, lately = (second - first) / (t1 - t0), (last - second) / (t2 - t1)
    # Workers that are started anew give all of it back.
    falls = float(np.max(np.maximum.accumulate(values) - values)) > LEVELS_OFF * (values[-1] - values[0])
    if before <= 0 or lately < LEVELS_OFF * before or falls or values[-1] - values[0] < LEAST_GROWN_BYTES:
        return None
    return lately * _S


def _stalled(seen: Records, elapsed_s: float) -> float | None:
    told = seen["memory_pressure_us"]
    told = told[told != NOT_MEASURED]
    return float(told[-1] - told[0]) / 1e6 / elapsed_s if len(told) > 1 and elapsed_s else None
