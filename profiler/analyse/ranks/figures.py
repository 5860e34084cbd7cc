"""Figures of a job: each put together from those of its ranks; of a single training process its own.

Reports, limits and exports all ask here, so that a figure of a job is the same wherever it is told. Throughput is told
by `cells.comparison.rate_of`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

from ...record.run import Run, Writer
from ..run.analysis import Analysis
from ..run.facts import Facts
from ..run.metrics import METRICS
from .membership import ranks_of

Read = Callable[[Facts], float | None]
Combine = Callable[[list[float]], float]


def processes(analysis: Analysis) -> list[Analysis]:
    """Each rank by itself; of a single training process itself."""
    return [part.analysis for part in analysis.ranks] or [analysis]


def leading(analysis: Analysis, runs: Sequence[Run]) -> tuple[Run, Writer] | None:
    """The process whose figures stand for the job, and the recording that holds it; `None` where none trained.

    `runs`: those that were analysed.
    """
    if not analysis.ranks:
        writer = runs[0].leading_writer()
        return None if writer is None else (runs[0], writer)
    told = [part.rank for part in analysis.ranks if part.analysis.facts is not None]
    number = analysis.job.lead if analysis.job is not None else next(iter(told), None)
    return next(((rank.run, rank.writer) for rank in ranks_of(runs) if rank.rank == number), None)


def all_facts(analysis: Analysis) -> list[Facts]:
    """The facts of each rank that has steps to show; of a single training process its own."""
    return [one.facts for one in processes(analysis) if one.facts is not None]


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
    """Steps of the rank that leads the job, in the time in which all ranks ran."""
    if analysis.job is not None:
        return analysis.job.steps
    return None if analysis.facts is None else analysis.facts.window.count


def figure(analysis: Analysis, name: str) -> float | None:
    """A registered metric of the job; `None` where it is not known."""
    if name in _OF_JOB:
        return _OF_JOB[name](analysis)
    metric = METRICS[name]
    return over_ranks(analysis, metric.of, metric.over_ranks)


def _busy(analysis: Analysis) -> float | None:
    """Share of the time in which the device computed, in percent: pauses that were seen inside a step are not busy."""
    share = shares(analysis).get("compute")
    return None if share is None else 100 * share


def _au(analysis: Analysis) -> float | None:
    return None if _busy(analysis) is None else over_ranks(analysis, METRICS["au_pct"].of)


def _cpus(analysis: Analysis) -> float | None:
    """CPUs that the job keeps busy on all hosts together; `None` where one of them does not tell."""
    used = METRICS["cpus_used"].of
    if not analysis.ranks:
        return None if analysis.facts is None else used(analysis.facts)
    # What the sampler of a host tells is of all ranks there.
    hosts: dict[str, list[float | None]] = {}
    for part in analysis.ranks:
        if part.analysis.facts is not None:
            hosts.setdefault(part.host, []).append(used(part.analysis.facts))
    of_each = [[known for known in ranks if known is not None] for ranks in hosts.values()]
    return sum(fmean(known) for known in of_each) if of_each and all(of_each) else None


_OF_JOB: Mapping[str, Callable[[Analysis], float | None]] = {"busy_pct": _busy, "au_pct": _au, "cpus_used": _cpus}
"""Metrics of a job that are made of more than one figure of each rank."""
