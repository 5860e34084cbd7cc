"""The ranks of a job, side by side."""

from __future__ import annotations

from collections.abc import Iterator

from ...analyse.ranks.job import Job
from ...analyse.run.analysis import Analysis, RankAnalysis
from ..document import Paragraph, TableBlock, TableColumn, table
from ..words.figures import NO_CAUSE, NOT_MEASURED

MOST_ROWS = 16
LEAST_SHOWN = 0.005
"""A part that is smaller on all ranks has no column."""
WAITING = ("input", "copy", "sync", "host", "boundary")


def ranks_blocks(analysis: Analysis) -> Iterator[Paragraph | TableBlock]:
    """One row a rank; of very many the latest, and how many are left out."""
    job = analysis.job
    known = [part.analysis.facts for part in analysis.ranks if part.analysis.facts is not None]
    parts = [p for p in WAITING if any(facts.shares.get(p, 0.0) >= LEAST_SHOWN for facts in known)]
    hosts = len({part.host for part in analysis.ranks}) > 1
    figures = ("samples/s", *(f"{p} %" for p in parts), "compute %", "late ms", "waits ms")
    columns = [
        TableColumn("rank", right=True),
        *([TableColumn("host", wraps=False, most=24)] if hosts else []),
        *(TableColumn(title, right=True, wraps=False) for title in figures),
        TableColumn("by itself", wraps=False),
    ]
    shown = _shown(analysis, job)
    yield table((_row(part, parts, hosts, job) for part in shown), *columns, head_tone="dim")
    if len(shown) < len(analysis.ranks):
        yield Paragraph(f"and {len(analysis.ranks) - len(shown)} ranks that are late by less; --json has them all")
    if job is not None and job.late_ns:
        yield Paragraph(
            "late: how much later than the other ranks it is ready for them, a step; waits: how long it waits for the "
            "last one, which counts as computing here."
        )


def _shown(analysis: Analysis, job: Job | None) -> list[RankAnalysis]:
    if len(analysis.ranks) <= MOST_ROWS:
        return list(analysis.ranks)
    late = job.late_ns if job is not None else {}
    latest = sorted(analysis.ranks, key=lambda part: (-late.get(part.rank, 0.0), part.rank))
    return sorted(latest[:MOST_ROWS], key=lambda part: part.rank)


def _row(part: RankAnalysis, parts: list[str], hosts: bool, job: Job | None) -> list[str]:
    facts = part.analysis.facts
    row = [str(part.rank)] + ([part.host or NOT_MEASURED] if hosts else [])
    if facts is None:
        return [*row, *[NOT_MEASURED] * (len(parts) + 4), "no steps"]
    shares = facts.shares
    late = job.late_ns.get(part.rank) if job is not None else None
    waits = job.waits_ns.get(part.rank) if job is not None else None
    return [
        *row,
        f"{facts.samples_per_s:.1f}",
        *(f"{100 * shares[p]:.1f}" if p in shares else NOT_MEASURED for p in (*parts, "compute")),
        NOT_MEASURED if late is None else f"{late / 1e6:.1f}",
        NOT_MEASURED if waits is None else f"{waits / 1e6:.1f}",
        part.analysis.verdict.cause or NO_CAUSE,
    ]
