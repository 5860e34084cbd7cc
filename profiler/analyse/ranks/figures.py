"""Figures of a job: each put together from those of its ranks. A single training process is a job of one rank.

Reports, limits and exports all ask here, so that a figure of a job is the same wherever it is told. Throughput is told
by `cells.comparison.rate_of`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import isnan
from statistics import fmean

from ...record.run import Run, Writer
from ..run.analysis import Analysis
from ..run.facts import Facts
from ..run.metrics import METRICS
from ..run.stall_breakdown import PARTS, UNTOLD
from .membership import ranks_of

Read = Callable[[Facts], float]
Combine = Callable[[list[float]], float]


def processes(analysis: Analysis) -> list[Analysis]:
    """Each rank by itself; of a single training process itself."""
    return [part.analysis for part in analysis.ranks] or [analysis]


def leading(analysis: Analysis, runs: Sequence[Run]) -> tuple[Run, Writer] | None:
    """Find the process whose figures stand for the job, and the recording that holds it; `None` where none trained.

    `runs`: those that were analysed.
    """
    if (job := analysis.job) is None:
        return None
    return next(((rank.run, rank.writer) for rank in ranks_of(runs) if rank.rank == job.lead), None)


def all_facts(analysis: Analysis) -> list[Facts]:
    """The facts of each rank that has steps to show."""
    return [one.facts for one in processes(analysis) if one.facts is not None]


def over_ranks(analysis: Analysis, read: Read, combine: Combine = fmean) -> float | None:
    """A figure over the ranks that have it; `None` where none has."""
    known = [value for facts in all_facts(analysis) if not isnan(value := read(facts))]
    return combine(known) if known else None


def shares(analysis: Analysis) -> Mapping[str, float]:
    """Parts of the wall time, 0..1, averaged over the ranks; empty where no step was recorded. A part that one rank
    does not know, the job does not."""
    ranks = [facts.shares for facts in all_facts(analysis)]
    known = [part for part in PARTS if ranks and all(part in rank for rank in ranks)]
    found = {part: fmean(rank[part] for rank in ranks) for part in known}
    return found | {UNTOLD: 1 - sum(found.values())} if any(UNTOLD in rank for rank in ranks) else found


def figure(analysis: Analysis, name: str) -> float | None:
    """A registered metric of the job, by the rule of the metric; `None` where it is not known."""
    metric = METRICS[name]
    if name == "cpus_used":
        # What the sampler of a host tells is of all ranks there; a host that tells nothing leaves the sum unknown.
        hosts: dict[str, list[float]] = {}
        for host, one in [(part.host, part.analysis) for part in analysis.ranks] or [("", analysis)]:
            if one.facts is not None:
                used = metric.of(one.facts)
                hosts.setdefault(host, []).extend([] if isnan(used) else [used])
        return sum(map(fmean, hosts.values())) if hosts and all(hosts.values()) else None
    values = [metric.of(facts) for facts in all_facts(analysis)]
    known = [value for value in values if not isnan(value)]
    # A rank of which computing is not told from waiting leaves the job's unknown.
    unknown = name in ("busy_pct", "au_pct") and len(known) < len(values)
    return metric.over_ranks(known) if known and not unknown else None
