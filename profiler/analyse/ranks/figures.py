"""Figures of a job: each put together from those of its ranks. A single training process is a job of one rank.

Reports, limits and exports all ask here, so that a figure of a job is the same wherever it is told.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from statistics import fmean

from ...record.run import Run, Writer
from ...record.schema import NAN
from ..run.analysis import Analysis
from ..run.facts import Facts
from ..run.metrics import METRICS
from ..run.stall_breakdown import PARTS, UNTOLD
from .membership import ranks_of


@dataclass(frozen=True)
class OverRanks:
    """How a figure of a job comes of its ranks'."""

    combine: Callable[[list[float]], float] = fmean
    """From those of the ranks that have it."""
    all_known: bool = False
    """Whether one rank that does not have it leaves the job's unknown."""
    of_hosts: bool = False
    """Whether each rank tells it of all ranks of its host: it is combined from the hosts' means, and a host that does
    not tell it leaves the job's unknown."""
    of: Callable[[Facts], float] | None = None
    """A rank's, NaN where it was not measured; `None`: a registered metric."""


OVER_RANKS: Mapping[str, OverRanks] = {
    "memory_peak_bytes": OverRanks(max),
    "cpu_steal_pct": OverRanks(max),
    "overhead_pct": OverRanks(max),
    "overhead_us_per_step": OverRanks(max, of=lambda facts: facts.overhead_ns_per_step / 1e3),
    "late_samples_pct": OverRanks(max, of=lambda facts: facts.sampled.late_samples_pct),
    "samples_per_s_limit": OverRanks(sum),
    "cpus_used": OverRanks(sum, of_hosts=True),
    # A rank of which computing is not told from waiting leaves the job's unknown.
    "busy_pct": OverRanks(all_known=True),
    "au_pct": OverRanks(all_known=True),
    "first_fetch_pct": OverRanks(
        of=lambda facts: 100 * facts.parts.first_fetch_ns / facts.parts.wall_ns if facts.input_known else NAN
    ),
    "hidden_wait_ms": OverRanks(of=lambda facts: facts.parts.hidden_wait_ns / 1e6 if facts.input_known else NAN),
}
"""By name of the figure; others are the mean over the ranks that have them."""


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


def shares(analysis: Analysis) -> Mapping[str, float]:
    """Parts of the wall time, 0..1, averaged over the ranks; empty where no step was recorded. A part that one rank
    does not know, the job does not."""
    ranks = [facts.shares for facts in all_facts(analysis)]
    known = [part for part in PARTS if ranks and all(part in rank for rank in ranks)]
    found = {part: fmean(rank[part] for rank in ranks) for part in known}
    return found | {UNTOLD: 1 - sum(found.values())} if any(UNTOLD in rank for rank in ranks) else found


def rate_of(analysis: Analysis) -> float | None:
    """Give the samples/s of a run, of all its ranks together; `None` where no step was recorded."""
    return None if analysis.job is None else analysis.job.samples_per_s


def figure(analysis: Analysis, name: str) -> float | None:
    """A registered metric of the job, or another one of `OVER_RANKS`, by its rule; `None` where it is not known."""
    how = OVER_RANKS.get(name, OverRanks())
    read, told = how.of or METRICS[name].of, dict[str, list[float]]()
    for rank, (host, one) in enumerate([(r.host, r.analysis) for r in analysis.ranks] or [("", analysis)]):
        if one.facts is not None:
            values = told.setdefault(host if how.of_hosts else str(rank), [])
            values += [] if isnan(value := read(one.facts)) else [value]
    known = [fmean(values) if how.of_hosts else values[0] for values in told.values() if values]
    unknown = (how.all_known or how.of_hosts) and len(known) < len(told)
    return how.combine(known) if known and not unknown else None
