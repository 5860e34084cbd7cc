"""Workers' memory grows, by what they keep or by copies of pages, until the machine swaps or kills."""

from __future__ import annotations

from dataclasses import replace

from ....record.schema import MemoryLimitOf
from ...run.facts import Facts
from ...run.resource_usage import MemoryGrowth, MemoryLimitSeen
from ..claim import Claim
from ..finding import Evidence, Finding, Next
from .wait import Wait

CAUSE = "input.memory"
LEAST_STALLED = 0.05
"""Share of the time in which tasks wait for memory, from which that is why batches take long."""
LEAST_FULL = 0.3
"""Share of the time without memory left from which that is."""
FEWER_HELP = 0.5
"""Of what is gained where workers take no more memory, what fewer of them are expected to gain."""
LEAST_SEEN_S = 15.0
"""Seconds of growth from which its pace is carried on: imports and first samples take memory too."""
KILLED = "Processes killed for lack of memory"
RAISED_BY = {
    MemoryLimitOf.CONTAINER: "`docker run --memory`, in Kubernetes `resources.limits.memory`",
    MemoryLimitOf.JOB: "`--mem` of `sbatch` or `srun`",
    MemoryLimitOf.SLICE: "`MemoryMax=` and `MemoryHigh=` of its unit (`systemctl set-property`)",
    MemoryLimitOf.GROUP: "its `memory.max` and `memory.high`",
}
"""Where each limit is set."""
AS_LONG_AGAIN = 10
"""Memory that lasts for less than so many times what was recorded is soon full."""


def memory(wait: Wait) -> Finding | None:
    """The machine has no memory left, because workers take ever more, and batches are made while it swaps."""
    growth = wait.facts.memory
    if growth is None or not _costs(growth):
        return None
    lost = wait.ns if growth.stalled_share is None else max(0.2 * wait.ns, growth.stalled_share * _stepping(wait))
    smaller, fewer = (
        replace(wait.removing(change, min(wait.ns, lost), likely=likely), kind=kind)
        for (kind, change), likely in zip(_changes(growth), (1.0, FEWER_HELP), strict=True)
    )
    owner = "the machine" if growth.limit is None else growth.limit.owner
    title = f"{wait.begins}, and {owner} has no memory left: {_grows(growth)}."
    return wait.found(title, 0.8, _evidence(growth), (smaller, fewer, *_more(growth.limit)))


def soon_full(facts: Facts) -> Finding | None:
    """Memory costs nothing yet, and will: at this pace there is none left before long."""
    growth = facts.memory
    if growth is None or growth.full_in_s is None or growth.elapsed_s < LEAST_SEEN_S:
        return None
    if growth.full_in_s > AS_LONG_AGAIN * growth.elapsed_s:
        return None
    of = "" if growth.limit is None else f" of {_limit(growth.limit)}"
    text = f"{_grows(growth)}. At this pace, none{of} is left in {_duration(growth.full_in_s)}{_then(growth.limit)}."
    changes = (*(Next(change, kind=kind) for kind, change in _changes(growth)), *_more(growth.limit))
    found = Claim(facts, 0.0, CAUSE).found(text[:1].upper() + text[1:], 0.7, _evidence(growth), changes)
    return replace(found, least_severity="major")


def _costs(growth: MemoryGrowth) -> bool:
    return (growth.stalled_share or 0.0) >= LEAST_STALLED or growth.full_share >= LEAST_FULL


def _stepping(wait: Wait) -> int:
    return wait.facts.parts.wall_ns - wait.facts.parts.boundary_ns


def _grows(growth: MemoryGrowth) -> str:
    how = "through copies of pages shared with the training" if growth.copied else "through data kept between samples"
    many = "the worker's memory grows" if growth.workers == 1 else f"the {growth.workers} workers' memory grows"
    return f"{many} by {growth.bytes_per_s * 60 / 1e6:.0f} MB per minute, {how}"


def _changes(growth: MemoryGrowth) -> tuple[tuple[str, str], tuple[str, str]]:
    """(kind, what to change), what helps most first."""
    less = (
        "Keep what workers only read in arrays or tensors instead of lists and dicts of Python objects (paths as one "
        "NumPy array of strings, records in a table): reading an object changes its reference count, which copies "
        "its page"
        if growth.copied
        else "Let workers keep nothing from sample to sample, or bound it (`functools.lru_cache` has a `maxsize`); put "
        "what all of them need into one array before they start"
    )
    return ("fewer_objects", less), (
        "fewer_workers",
        f"Use fewer workers than {growth.workers}, or set `persistent_workers=False`, which frees memory each epoch",
    )


def _limit(limit: MemoryLimitSeen) -> str:
    size, unit = (1 << 30, "GiB") if limit.bytes >= 1 << 30 else (1 << 20, "MiB")
    return f"{limit.owner}'s {limit.bytes / size:.1f} {unit}"


def _then(limit: MemoryLimitSeen | None) -> str:
    """What comes then, where a limit says it."""
    if limit is None:
        return ""
    if limit.slows:
        return ", and the kernel slows it down"
    return ", and the kernel kills one of its processes" if limit.swap_bytes == 0 else ""


def _more(limit: MemoryLimitSeen | None) -> tuple[Next, ...]:
    """A higher limit, where a limit is what ends the memory and not the machine."""
    if limit is None:
        return ()
    return (Next(f"Give {limit.owner} more memory: {RAISED_BY.get(limit.whose, RAISED_BY[MemoryLimitOf.GROUP])}"),)


def _evidence(growth: MemoryGrowth) -> tuple[Evidence, ...]:
    left, full_in = growth.available_bytes, growth.full_in_s
    killed = () if growth.kills is None else (Evidence(KILLED, growth.kills, "", "0"),)
    return (
        Evidence("Memory growth of the workers", growth.bytes_per_s * 60 / 1e6, "MB per minute", "levels off"),
        Evidence("Copies of shared pages in that growth", "most" if growth.copied else "little", "", "little"),
        Evidence(
            "Memory left at the end" + ("" if growth.limit is None else f", of {_limit(growth.limit)}"),
            None if left is None else left / 1e6,
            "MB",
        ),
        Evidence("Time until none is left, at this pace", None if full_in is None else full_in / 60, "min"),
        Evidence("Time without memory left", 100 * growth.full_share, "%", "0 %"),
        Evidence(
            "Time in which tasks wait for memory",
            None if growth.stalled_share is None else 100 * growth.stalled_share,
            "%",
            "0 %",
        ),
        Evidence("Written to swap", growth.swapped_bytes / 1e6, "MB", "0 MB"),
        *killed,
    )


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"
