"""What a change would gain: a prediction with its range, from where the wall time went."""

from __future__ import annotations

from ..run.facts import Facts
from .finding import Next


def removing(facts: Facts, change: str, removed_ns: float, *, least: float = 0.0, likely: float = 1.0) -> Next:
    """A change that takes time away.

    Args:
        change: what to change, with the exact code or flag.
        removed_ns: how much of the window's time can vanish at most.
        least: the share of it that vanishes at least, 0..1.
        likely: the share that is expected to.
    """
    times = (likely * removed_ns, least * removed_ns, removed_ns)
    return Next(change, *(facts.without(time) for time in times))


def overlapping(facts: Facts, change: str, removed_ns: float, supply: float | None = None) -> Next:
    """A change that lets batches be made while the training computes.

    Where both need the same CPUs, one gains what the other loses: there the CPUs set a limit too.

    Args:
        removed_ns: how much of the wait for data can vanish at most.
        supply: samples/s that the loader could deliver after the change; `None` where that is not known.
    """
    now = facts.samples_per_s
    most = facts.without(min(removed_ns, facts.parts.input_ns))
    if most is not None and facts.device_kind == "cpu":
        limit = facts.cpu_limit
        most = None if limit is None else max(now, min(most, limit))
    if most is None:
        return Next(change)
    if facts.headroom is not None:
        most = max(now, min(most, facts.headroom))
    if supply is None:
        return Next(change, (now + most) / 2, now, most)
    predicted = max(now, min(most, supply))
    return Next(change, predicted, max(now, 0.6 * predicted), most)
