"""Figures of a job: each put together from those of its ranks; of a single training process its own.

Reports, limits and exports all ask here, so that a figure of a job is the same wherever it is told. Of throughput see
`compare.rate_of`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import fmean

from ..run.analysis import Analysis
from ..run.facts import Facts

Read = Callable[[Facts], float | None]
Combine = Callable[[list[float]], float]


def all_facts(analysis: Analysis) -> list[Facts]:
    """Of each rank that has steps to show."""
    each = [part.analysis for part in analysis.ranks] or [analysis]
    return [one.facts for one in each if one.facts is not None]


def over_ranks(analysis: Analysis, read: Read, combine: Combine = fmean) -> float | None:
    """A figure over the ranks that have it; `None` where none has."""
    known = [value for facts in all_facts(analysis) if (value := read(facts)) is not None]
    return combine(known) if known else None


def shares(analysis: Analysis) -> Mapping[str, float]:
    """Known parts of the wall time, 0..1, averaged over the ranks; empty where no step was recorded."""
    if analysis.job is not None:
        return analysis.job.shares
    return {} if analysis.facts is None else analysis.facts.shares


def wall_ns(analysis: Analysis) -> int | None:
    """Time in which all ranks ran."""
    if analysis.job is not None:
        return analysis.job.wall_ns
    return None if analysis.facts is None else analysis.facts.parts.wall_ns


def steps(analysis: Analysis) -> int | None:
    """Steps of one rank in that time: of the one that leads the job."""
    if analysis.job is not None:
        return analysis.job.steps
    return None if analysis.facts is None else analysis.facts.window.count


def busy(analysis: Analysis) -> float | None:
    """Share of wall time in which the steps' computation ran, in percent: the part `compute`.

    Pauses that were seen inside a step are not busy.
    """
    share = shares(analysis).get("compute")
    return None if share is None else 100 * share


def au(analysis: Analysis) -> float | None:
    """MLPerf Storage's accelerator utilisation in percent: from the begin to the end of each step's computation."""
    if busy(analysis) is None:
        return None
    return over_ranks(analysis, lambda facts: 100 * facts.parts.stepping_share if facts.told_apart else None)


def utilisation(analysis: Analysis) -> float | None:
    """As the driver tells it, in percent: the mean over the ranks' devices."""
    return over_ranks(analysis, lambda facts: facts.sampled.utilisation_pct)


def sm_active(analysis: Analysis) -> float | None:
    """Share of the multiprocessors at work, in percent: the mean over the ranks' devices."""
    return over_ranks(analysis, lambda facts: facts.sampled.sm_active_pct)


def memory_peak(analysis: Analysis) -> float | None:
    """Bytes of device memory on the fullest device."""
    return over_ranks(analysis, lambda facts: facts.sampled.memory_peak_bytes, max)


def steal(analysis: Analysis) -> float | None:
    """CPU time that the hypervisor took, in percent, on the worst host."""
    return over_ranks(analysis, lambda facts: facts.sampled.steal_pct, max)


def overhead(analysis: Analysis) -> float | None:
    """Time spent in our own hooks, in percent, on the rank that spent most: the others wait for it."""
    return over_ranks(analysis, lambda facts: 100 * facts.overhead_share, max)


def worker_busy(analysis: Analysis) -> float | None:
    """Share of the time in which loader workers made batches, in percent: the mean over the ranks."""
    return over_ranks(analysis, lambda facts: facts.loader.worker_busy_pct)


def queue_ready(analysis: Analysis) -> float | None:
    """Batches ready when the training asked for one: the mean over the ranks."""
    return over_ranks(analysis, lambda facts: facts.loader.queue_ready_mean)


def cpus(analysis: Analysis) -> float | None:
    """CPUs that the job kept busy, on all its hosts together; `None` where one of them does not tell."""
    if not analysis.ranks:
        return None if analysis.facts is None else analysis.facts.sampled.tree_cpus
    # What the sampler of a host tells is of all ranks there.
    hosts: dict[str, list[float | None]] = {}
    for part in analysis.ranks:
        if part.analysis.facts is not None:
            hosts.setdefault(part.host, []).append(part.analysis.facts.sampled.tree_cpus)
    of_each = [[used for used in ranks if used is not None] for ranks in hosts.values()]
    return sum(fmean(known) for known in of_each) if of_each and all(of_each) else None
